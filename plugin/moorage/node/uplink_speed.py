"""The measured speeds of this node's uplinks, from `moorage net measure`: valid until kernel or program change."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from moorage.common import files

PLACE: Final = Path("/var/lib/moorage/uplinks.json")
# A file of another form counts as no file.
FORM: Final = 1


@dataclass(frozen=True)
class Spread:
    """The median and the extremes of several measurements."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        # Only here: readers of the file do not need it.
        from statistics import median

        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}-{self.most:.2f})"


@dataclass(frozen=True)
class Speed:
    """Gbit/s out of a job and into it, and the round trip in microseconds."""

    outward: Spread
    inward: Spread
    round_trip: Spread

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(*(Spread(*map(float, fields[name])) for name in ("outward", "inward", "round_trip")))

    def as_dict(self) -> dict[str, list[float]]:
        return {name: [round(value, 3) for value in vars(spread).values()] for name, spread in vars(self).items()}

    @property
    def worth(self) -> float:
        """The slower direction, by which uplinks are compared: a job needs both."""
        return min(self.outward.median, self.inward.median)


@dataclass(frozen=True)
class Record:
    """One measurement of all uplinks of this node."""

    kernel: str
    bare: Speed
    uplinks: Mapping[str, Speed]
    # By program, as it prints them.
    versions: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "form": FORM,
            **vars(self),
            "bare": self.bare.as_dict(),
            "uplinks": {name: speed.as_dict() for name, speed in self.uplinks.items()},
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        if fields["form"] != FORM:
            raise ValueError(f"form {fields['form']} is not known")
        uplinks = {name: Speed.from_dict(speed) for name, speed in fields["uplinks"].items()}
        bare, kernel, versions = Speed.from_dict(fields["bare"]), fields["kernel"], fields["versions"]
        return cls(kernel, bare, uplinks, versions, fields["left_out"])

    def save(self, path: Path | None = None) -> None:
        path = path or PLACE
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Users may ask how their jobs' uplinks are chosen.
        files.replace(path, json.dumps(self.as_dict()) + "\n", 0o644)


def known(versions: Mapping[str, str], path: Path | None = None) -> dict[str, Speed]:
    """The speeds of uplinks whose program is still the same; none if anybody but root can write the file."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        record = Record.from_dict(json.loads(files.private(path or PLACE)))
        if record.kernel == os.uname().release:
            return {
                name: speed
                for name, speed in record.uplinks.items()
                if record.versions.get(name, "") == versions.get(name, "")
            }
    return {}
