"""Features: the hardware that containers of a job get to see, as the site describes it in one file for each kind."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moorage.common.errors import UserError
from moorage.common.hardware import Bind, Hardware, Resource
from moorage.node.config import load
from moorage.node.config.schema import key, known_keys
from moorage.node.config.values import assignments, binds, devices, gres
from moorage.node.config.values import cdi as cdi_names
from moorage.node.factcache import Facts
from moorage.node.finding import Finding

if TYPE_CHECKING:
    from moorage.node import cdi

DIRECTORY: Final = "features.d"
CHECK: Final = "features"
# The generic resources that Slurm names to a Prolog: GPUs, or shares of them. It names no others (24.11, 26.05): those
# show in the job's device cgroup, which comes later.
TOLD: Final = {"gpu": "SLURM_JOB_GPUS"}
# Slurm's word for a GPU without a file.
NO_FILES: Final = "NoDevFiles"
# In the name of a device: the number of each device that the job has.
EACH: Final = "%"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
# Devices that vendors have described.
Known = Mapping[str, "cdi.Device"]
NONE: Final[Known] = {}

_NUMBER: Final = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True)
class Feature:
    """One file. Without `gres` it is for every job."""

    gres: str | None = key(gres(), None)
    devices: tuple[str, ...] = key(devices(EACH), ())
    binds: tuple[str, ...] = key(binds(), ())
    environment: tuple[str, ...] = key(assignments(), ())
    cdi: tuple[str, ...] = key(cdi_names(EACH), ())
    path: Path = field(default=Path(), compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def numbered(self) -> Iterator[str]:
        """The keys whose values have a number."""
        return (name for name in ("devices", "cdi") if any(EACH in one for one in getattr(self, name)))

    def values(self) -> Iterator[tuple[str, object, str]]:
        """The keys that its file sets, with value and place."""
        for name in known_keys(Feature):
            if name in self.sources:
                yield name, getattr(self, name), self.sources[name]

    def hardware(self, numbers: Sequence[str], known: Known = NONE) -> Hardware:
        """The hardware of the file, for a job that has these numbers of its resource."""
        own = Hardware(_numbered(self.devices, numbers), tuple(map(Bind.parse, self.binds)), self.environment)
        vendors = (known[name].hardware for name in _numbered(self.cdi, numbers) if name in known)
        return Hardware.joined([own, *vendors])

    def resource(self, known: Known = NONE) -> Resource:
        """The generic resource of the file, with every unit that this node has; `gres` has to be set."""
        numbers = self._numbers_here(known)
        units = (_openable(unit, known) for unit in self._units(numbers))
        return Resource(self.gres or "", tuple(filter(None, units)), self.hardware(numbers, known))

    def _units(self, numbers: Sequence[str]) -> list[tuple[str, ...]]:
        """The names of the devices of each unit. Beside numbered devices, those without a number are everybody's."""
        names = (*self.devices, *self.cdi)
        if numbered := [name for name in names if EACH in name]:
            return [_numbered(numbered, [number]) for number in numbers]
        return [(name,) for name in names]

    def _numbers_here(self, known: Known) -> list[str]:
        """The numbers for which this node has any of the numbered devices, in their order."""
        patterns = [name for name in (*self.devices, *self.cdi) if EACH in name]
        return sorted({number for pattern in patterns for number in _numbers_of(pattern, known)}, key=int)

    def unknown(self, numbers: Sequence[str], known: Known) -> Iterator[str]:
        """The vendors' devices that no vendor has described."""
        return (name for name in _numbered(self.cdi, numbers) if name not in known)


def _numbered(devices: Iterable[str], numbers: Sequence[str]) -> tuple[str, ...]:
    return tuple(one.replace(EACH, number) for one in devices for number in (numbers if EACH in one else ("",)))


def _openable(unit: Iterable[str], known: Known) -> tuple[str, ...]:
    """The device files that a job with this unit may open, without those that all of a vendor's devices share."""
    return tuple(device for name in unit for device in _own_devices(name, known))


def _own_devices(name: str, known: Known) -> tuple[str, ...]:
    if name.startswith("/"):
        return (name,)
    return known[name].own.devices if name in known else ()


def _numbers_of(pattern: str, known: Known) -> Iterator[str]:
    """The numbers for which there is a device of this name, such as 0 and 1 for /dev/nvidia%."""
    # All numbers in one name are the same.
    form = re.compile(re.escape(pattern).replace(EACH, f"({_NUMBER.pattern})", 1).replace(EACH, r"\1"))
    there = map(str, devices_like(pattern)) if pattern.startswith("/") else known
    return (match[1] for name in there if (match := form.fullmatch(name)))


def devices_like(pattern: str) -> Iterator[Path]:
    """The files of this node whose names may fit."""
    return Path("/").glob(re.sub(f"{EACH}+", "*", pattern).lstrip("/"))


def place() -> Path:
    return load.PLACE.parent / DIRECTORY


def examine(directory: Path | None = None, facts: Facts | None = None) -> tuple[list[Feature], list[UserError]]:
    """All files of the directory, sorted by name, and the errors in them."""
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
        return Feature(path=path), [
            UserError(f"{path} is not a name for a feature", "use a-z, 0-9, _ and -", code="M-FEATURE-4")
        ]
    try:
        feature, faults = load.checked(Feature, load.entries(path, facts), path, path=path)
    except UserError as fault:
        return Feature(path=path), [fault]
    if not feature.gres and (name := next(feature.numbered, None)):
        what = f"{feature.sources[name]}: {EACH} stands for a device that was allotted"
        faults.append(UserError(what, "name its resource, with gres", code="M-FEATURE-5"))
    if feature.gres and feature.gres not in TOLD and not (feature.devices or feature.cdi) and not faults:
        what = f"{feature.sources['gres']}: which job has {feature.gres}, only its devices tell"
        faults.append(
            UserError(
                what,
                f"name them, with devices or cdi; of {' and '.join(TOLD)} alone Slurm tells by itself",
                code="M-FEATURE-6",
            )
        )
    return feature, faults


def _unsafe(directory: Path) -> Iterator[UserError]:
    status = directory.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield UserError(
            f"{directory} can be written by others than root",
            f"chown root: {directory}; chmod 755 {directory}",
            code="M-FEATURE-7",
        )


def allotted(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """The resources that Slurm says this job has on this node, with their numbers if they have any."""
    said = {name: environ.get(variable, "") for name, variable in TOLD.items()}
    return {
        name: [number for number in text.split(",") if _NUMBER.fullmatch(number)]
        for name, text in said.items()
        if text and text != NO_FILES
    }


@dataclass(frozen=True)
class Outfit:
    """The hardware of a job, the features that it comes from, those left out, and the faults."""

    hardware: Hardware = field(default_factory=Hardware)
    names: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    faults: tuple[Finding, ...] = ()


def outfit(features: Iterable[Feature], has: Mapping[str, Sequence[str]], facts: Facts | None = None) -> Outfit:
    """The job's hardware. A device that Slurm gave to the job must exist; others are left out if they do not."""
    features = [feature for feature in features if feature.gres not in TOLD or feature.gres in has]
    try:
        known = vendors(features, facts)
    except UserError as fault:
        return Outfit(faults=(Finding(CHECK, fault.what, fault.remedy, "site", code=fault.code),))
    parts: dict[str, Hardware] = {}
    left_out: list[str] = []
    faults: list[Finding] = []
    for feature in features:
        hardware, lacking = _looked_for(feature, has, known)
        if lacking is None:
            parts[feature.name] = hardware
        elif feature.gres in TOLD:
            cause = f"{feature.path}: this node has no {lacking}, and this job was allotted {feature.gres}"
            faults.append(Finding(CHECK, cause, "have the driver loaded, or correct the file", code="M-FEATURE-8"))
        else:
            left_out.append(f"{feature.name}: there is no {lacking}")
    return Outfit(Hardware.joined(parts.values()), tuple(parts), tuple(left_out), tuple(faults))


def vendors(features: Iterable[Feature], facts: Facts | None = None) -> Known:
    """The vendors' devices that these features name; a UserError if a vendor's file is wrong."""
    names = [name for feature in features for name in feature.cdi]
    if not names:
        return {}
    # Only here: most sites name no vendor's devices.
    from moorage.node import cdi

    return cdi.known(names, facts or Facts())


def _looked_for(feature: Feature, has: Mapping[str, Sequence[str]], known: Known) -> tuple[Hardware, str | None]:
    """The hardware of the feature, and the first part of it that this node lacks."""
    if feature.gres is None or feature.gres in TOLD:
        numbers = has.get(feature.gres or "", ())
        hardware = feature.hardware(numbers, known)
        return hardware, next(chain(feature.unknown(numbers, known), hardware.lacking()), None)
    resource = feature.resource(known)
    lacking = next(resource.hardware.lacking(), None if resource.units else (*feature.devices, *feature.cdi)[0])
    return Hardware(resources=(resource,)), lacking
