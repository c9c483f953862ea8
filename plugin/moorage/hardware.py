"""What of a node's hardware a job's containers get to see: data, made by root and used by the job."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class Bind:
    """A file or directory of the node's, and where containers have it."""

    source: str
    target: str
    writable: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """/SOURCE, /SOURCE:/TARGET, and either with :rw at its end."""
        places = text.removesuffix(":rw").split(":")
        return cls(places[0], places[-1], writable=text.endswith(":rw"))


@dataclass(frozen=True)
class Hardware:
    """Nothing of it widens what the job may open: that is for its device cgroup to say."""

    devices: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    environment: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            devices=tuple(fields.get("devices", ())),
            binds=tuple(Bind(**bind) for bind in fields.get("binds", ())),
            environment=tuple(fields.get("environment", ())),
        )

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Of two for the same place, or of the same name, the first."""
        parts = list(parts)
        binds: dict[str, Bind] = {}
        environment: dict[str, str] = {}
        for part in parts:
            for bind in part.binds:
                binds.setdefault(bind.target, bind)
            for line in part.environment:
                environment.setdefault(line.partition("=")[0], line)
        devices = dict.fromkeys(device for part in parts for device in part.devices)
        return cls(tuple(devices), tuple(binds.values()), tuple(environment.values()))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lacking(self) -> Iterator[str]:
        """What this node has not got."""
        for device in self.devices:
            if not _is_device(Path(device)):
                yield device
        for bind in self.binds:
            if not os.path.lexists(bind.source):
                yield bind.source

    def openable(self) -> Self:
        """Without the devices that this process may not open; the kernel asks the device cgroup here as for an open."""
        return replace(self, devices=tuple(one for one in self.devices if os.access(one, os.R_OK | os.W_OK)))


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False
