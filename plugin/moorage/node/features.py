"""The site's hardware as data: what containers of which jobs are to see, in one file for each kind."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Final

from moorage.common.errors import UserError
from moorage.common.hardware import Bind, Hardware, Resource
from moorage.node import cdi
from moorage.node.config import load
from moorage.node.config.schema import read
from moorage.node.config.values import assignments, binds, devices, gres
from moorage.node.config.values import cdi as cdi_names
from moorage.node.factcache import Facts
from moorage.node.finding import Finding

DIRECTORY: Final = "features.d"
CHECK: Final = "features"
# What Slurm tells a Prolog of a job's generic resources: GPUs, or shares of them. For others, with a plug-in or
# without, it sets nothing (24.11, 26.05): of those a job's device cgroup tells, once there is one.
TOLD: Final = {"gpu": "SLURM_JOB_GPUS"}
# It says so where a GPU has no file.
NO_FILES: Final = "NoDevFiles"
# In a device's name, for each that was allotted.
EACH: Final = "%"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
# The devices of which vendors have told.
Known = Mapping[str, cdi.Device]
NONE: Final[Known] = {}

_NUMBER: Final = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True)
class Feature:
    """One file; without `gres` it is for every job."""

    gres: str | None = field(default=None, metadata=read(gres()))
    devices: tuple[str, ...] = field(default=(), metadata=read(devices(EACH)))
    binds: tuple[str, ...] = field(default=(), metadata=read(binds()))
    environment: tuple[str, ...] = field(default=(), metadata=read(assignments()))
    cdi: tuple[str, ...] = field(default=(), metadata=read(cdi_names(EACH)))
    path: Path = field(default=Path(), compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def numbered(self) -> Iterator[str]:
        """The settings in which there is a number."""
        return (name for name in ("devices", "cdi") if any(EACH in one for one in getattr(self, name)))

    def values(self) -> Iterator[tuple[str, object, str]]:
        """What its file sets, and where."""
        for name in (one.name for one in fields(self) if "read" in one.metadata):
            if name in self.sources:
                yield name, getattr(self, name), self.sources[name]

    def hardware(self, numbers: Sequence[str], known: Known = NONE) -> Hardware:
        """All of it, with these devices of its resource; vendors' are looked up in what is `known`."""
        own = Hardware(_numbered(self.devices, numbers), tuple(map(Bind.parse, self.binds)), self.environment)
        vendors = (known[name].hardware for name in _numbered(self.cdi, numbers) if name in known)
        return Hardware.joined([own, *vendors])

    def resource(self, known: Known = NONE) -> Resource:
        """All of it, with every device that this node has of its resource; `gres` has to be set."""
        numbered = [one for one in (*self.devices, *self.cdi) if EACH in one]
        numbers = sorted({number for one in numbered for number in _numbers(one, known)}, key=int)
        # What lies beside those that are numbered is everybody's.
        names = [_numbered(numbered, [number]) for number in numbers]
        if not numbered:
            names = [(one,) for one in (*self.devices, *self.cdi)]
        units = (tuple(device for one in unit for device in _nodes(one, known)) for unit in names)
        return Resource(self.gres or "", tuple(filter(None, units)), self.hardware(numbers, known))

    def unknown(self, numbers: Sequence[str], known: Known) -> Iterator[str]:
        """Which of the vendors' devices no vendor has told of."""
        return (name for name in _numbered(self.cdi, numbers) if name not in known)


def _numbered(devices: Iterable[str], numbers: Sequence[str]) -> tuple[str, ...]:
    return tuple(one.replace(EACH, number) for one in devices for number in (numbers if EACH in one else ("",)))


def _nodes(name: str, known: Known) -> tuple[str, ...]:
    """What a job that has the device may open: not what all of the vendor's have in common."""
    return (name,) if name.startswith("/") else known[name].own.devices if name in known else ()


def _numbers(device: str, known: Known = NONE) -> Iterator[str]:
    """Those that there are on this node."""
    form = re.compile(re.escape(device).replace(EACH, f"({_NUMBER.pattern})", 1).replace(EACH, r"\1"))
    there = Path("/").glob(re.sub(f"{EACH}+", "*", device).lstrip("/")) if device.startswith("/") else known
    return (match[1] for one in there if (match := form.fullmatch(str(one))))


def place() -> Path:
    return load.PLACE.parent / DIRECTORY


def examine(directory: Path | None = None, facts: Facts | None = None) -> tuple[list[Feature], list[UserError]]:
    """Every file of the directory, by name, and all that is wrong in them."""
    directory = directory or place()
    found: list[Feature] = []
    try:
        faults = list(_unsafe(directory))
        paths = sorted(path for path in directory.iterdir() if path.suffix == ".yaml" and path.name[0] != ".")
    except FileNotFoundError:
        return [], []
    for path in paths:
        feature, wrong = _examined(path, facts or Facts())
        found.append(feature)
        faults += wrong
    return found, faults


def _examined(path: Path, facts: Facts) -> tuple[Feature, list[UserError]]:
    if not _NAME.fullmatch(path.stem):
        return Feature(path=path), [UserError(f"{path} is no name for a feature", "use a-z, 0-9, _ and -")]
    try:
        feature, faults = load.checked(Feature, load.entries(path, facts), path, path=path)
    except UserError as fault:
        return Feature(path=path), [fault]
    if not feature.gres and (name := next(feature.numbered, None)):
        what = f"{feature.sources[name]}: {EACH} stands for a device that was allotted"
        faults.append(UserError(what, "say of which resource, with gres"))
    if feature.gres and feature.gres not in TOLD and not (feature.devices or feature.cdi) and not faults:
        what = f"{feature.sources['gres']}: which job has {feature.gres}, only its devices tell"
        faults.append(
            UserError(what, f"name them, with devices or cdi; of {' and '.join(TOLD)} alone Slurm tells by itself")
        )
    return feature, faults


def _unsafe(directory: Path) -> Iterator[UserError]:
    status = directory.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield UserError(
            f"{directory} can be written by others than root", f"chown root: {directory}; chmod 755 {directory}"
        )


def allotted(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """The resources that Slurm says this job has on this node, with their numbers as far as they have any."""
    said = {name: environ.get(variable, "") for name, variable in TOLD.items()}
    return {
        name: [number for number in text.split(",") if _NUMBER.fullmatch(number)]
        for name, text in said.items()
        if text and text != NO_FILES
    }


@dataclass(frozen=True)
class Outfit:
    """What a job gets, of which features, and what keeps it from getting all."""

    hardware: Hardware = field(default_factory=Hardware)
    names: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    faults: tuple[Finding, ...] = ()


def outfit(features: Iterable[Feature], has: Mapping[str, Sequence[str]], facts: Facts | None = None) -> Outfit:
    """What a job was allotted has to be there; what may be any job's is left out where this node has not got it."""
    features = [feature for feature in features if feature.gres not in TOLD or feature.gres in has]
    try:
        known = vendors(features, facts)
    except UserError as fault:
        return Outfit(faults=(Finding(CHECK, fault.what, fault.remedy, "site"),))
    parts: dict[str, Hardware] = {}
    left_out: list[str] = []
    faults: list[Finding] = []
    for feature in features:
        hardware, lacking = _looked_for(feature, has, known)
        if lacking is None:
            parts[feature.name] = hardware
        elif feature.gres in TOLD:
            cause = f"{feature.path}: this node has no {lacking}, and this job was allotted {feature.gres}"
            faults.append(Finding(CHECK, cause, "have the driver loaded, or correct the file"))
        else:
            left_out.append(f"{feature.name}: there is no {lacking}")
    return Outfit(Hardware.joined(parts.values()), tuple(parts), tuple(left_out), tuple(faults))


def vendors(features: Iterable[Feature], facts: Facts | None = None) -> Known:
    """What these want of vendors; a UserError if a vendor's word is none."""
    return cdi.known([name for feature in features for name in feature.cdi], facts or Facts())


def _looked_for(feature: Feature, has: Mapping[str, Sequence[str]], known: Known) -> tuple[Hardware, str | None]:
    """What a job gets of it, and the first thing that this node has not got."""
    if feature.gres is None or feature.gres in TOLD:
        numbers = has.get(feature.gres or "", ())
        hardware = feature.hardware(numbers, known)
        return hardware, next(chain(feature.unknown(numbers, known), hardware.lacking()), None)
    resource = feature.resource(known)
    lacking = next(resource.hardware.lacking(), None if resource.units else (*feature.devices, *feature.cdi)[0])
    return Hardware(resources=(resource,)), lacking
