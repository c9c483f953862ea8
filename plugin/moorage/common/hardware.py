"""The hardware of a node that a job's containers see: data that root makes and the job uses."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Bind:
    """A file or directory of the node, and its place in containers."""

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
    """It gives no permission: the job's device cgroup decides what the job may open."""

    devices: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    environment: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = ()

    @staticmethod
    def joined(parts: Iterable[Hardware]) -> Hardware:
        """All parts together. The first one wins for each target and each variable."""
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
        """The devices and files that this node lacks."""
        for device in self.devices:
            if not _is_device(Path(device)):
                yield device
        for bind in self.binds:
            if not os.path.lexists(bind.source):
                yield bind.source

    @property
    def given(self) -> dict[str, int]:
        """The number of units of each resource. Several files may describe one resource."""
        names = dict.fromkeys(resource.name for resource in self.resources)
        return {name: len({unit for one in self.resources if one.name == name for unit in one.units}) for name in names}

    def openable(self) -> Hardware:
        """The part that this process may open, and what belongs to it."""
        resources = tuple(found for resource in self.resources if (found := resource.openable()).units)
        own = replace(self, devices=_openable(self.devices), resources=resources)
        return self.joined([own, *(resource.hardware for resource in resources)])


@dataclass(frozen=True)
class Resource:
    """A generic resource that Slurm does not name to a Prolog: a job has the units whose devices it may open."""

    name: str
    # The devices of each unit.
    units: tuple[tuple[str, ...], ...]
    # Everything that belongs to the resource.
    hardware: Hardware

    def openable(self) -> Self:
        units = tuple(unit for unit in self.units if _openable(unit) == unit)
        return replace(self, units=units, hardware=self.hardware.openable())


def _openable(devices: Iterable[str]) -> tuple[str, ...]:
    """The devices that this process may open: for access(2) the kernel asks the device cgroup, too."""
    return tuple(one for one in devices if os.access(one, os.R_OK | os.W_OK))


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False
