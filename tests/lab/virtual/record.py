"""What a lab was started from, kept in its directory: later commands find the same guests, whatever has changed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from .acceleration import Acceleration
from .guest import Guest

NAME = "lab.json"
PLACES = ("disk", "scratch", "kernel", "initrd", "key")


@dataclass(frozen=True)
class Request:
    """What `up` is asked for."""

    nodes: int
    suite: str
    port: int
    apparmor: bool = False
    # Without Moorage.
    bare: bool = False
    # Else their kernels know nothing of it.
    ipv6: bool = True
    # What of the release's own kernel these guests are there for, if it is that.
    own_kernel: str = ""

    def needs_own_kernel(self) -> str:
        """Why; empty if another kernel does."""
        if self.own_kernel or self.apparmor:
            return f"{self.own_kernel or 'AppArmor'} needs Debian's own kernel"
        return ""


@dataclass(frozen=True)
class Record:
    request: Request
    guest: Guest
    payload: Path
    acceleration: Acceleration

    def keep(self, directory: Path) -> None:
        (directory / NAME).write_text(json.dumps(dataclasses.asdict(self), default=str))


def read(directory: Path) -> Record:
    kept = json.loads((directory / NAME).read_text())
    guest = kept["guest"] | {name: Path(kept["guest"][name]) for name in PLACES}
    how = Acceleration(**kept["acceleration"])
    return Record(Request(**kept["request"]), Guest(**guest), Path(kept["payload"]), how)
