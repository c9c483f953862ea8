"""What a lab was started from, kept in its directory: later commands find the same guests, whatever has changed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from ..build.guest import Guest
from .acceleration import Acceleration

NAME = "lab.json"
# Booted to be refused; its Slurm cannot read the lab's configuration.
TOO_OLD = ("bookworm",)
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
    # What these guests are there for, if only QEMU's have it: snapshots, say.
    only_qemu: str = ""

    def reason_for_qemu(self) -> str:
        """Why these guests must be QEMU's; empty if they may be others."""
        if self.apparmor:
            return "AppArmor needs Debian's own kernel"
        if self.suite in TOO_OLD:
            return f"Debian {self.suite} needs its own kernel"
        return f"User-Mode Linux has no {self.only_qemu}" if self.only_qemu else ""


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
