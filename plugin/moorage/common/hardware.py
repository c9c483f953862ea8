"""What of a node's hardware a job's containers get to see: data, made by root and used by the job."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self


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
    resources: tuple[Resource, ...] = ()

    @staticmethod
    def joined(parts: Iterable[Hardware]) -> Hardware:
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
        resources = tuple(resource for part in parts for resource in part.resources)
        return Hardware(tuple(devices), tuple(binds.values()), tuple(environment.values()), resources)

    def lacking(self) -> Iterator[str]:
        """What this node has not got."""
        for device in self.devices:
            if not _is_device(Path(device)):
                yield device
        for bind in self.binds:
            if not os.path.lexists(bind.source):
                yield bind.source

    @property
    def given(self) -> dict[str, int]:
        """How many of each resource there are; several files may tell of one, and of the same."""
        names = dict.fromkeys(resource.name for resource in self.resources)
        return {name: len({unit for one in self.resources if one.name == name for unit in one.units}) for name in names}

    def openable(self) -> Hardware:
        """What this process may open of it, and what goes with that."""
        resources = tuple(found for resource in self.resources if (found := resource.openable()).units)
        own = replace(self, devices=_openable(self.devices), resources=resources)
        return self.joined([own, *(resource.hardware for resource in resources)])


@dataclass(frozen=True)
class Resource:
    """A generic resource of which Slurm tells a Prolog nothing: a job has those whose devices it may open."""

    name: str
    # The devices of each.
    units: tuple[tuple[str, ...], ...]
    # All that goes with it.
    hardware: Hardware

    def openable(self) -> Self:
        units = tuple(unit for unit in self.units if _openable(unit) == unit)
        return replace(self, units=units, hardware=self.hardware.openable())


def _openable(devices: Iterable[str]) -> tuple[str, ...]:
    """The kernel asks the device cgroup here as for an open."""
    return tuple(one for one in devices if os.access(one, os.R_OK | os.W_OK))


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False
