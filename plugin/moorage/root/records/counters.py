"""Counters of what has happened on this node, fed by the records of jobs.

They have a file of their own: records are removed after some time, and a counter must not go back.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from moorage.common import files, job
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.linux import flock

STARTS: Final = "moorage_starts_total"
FAILURES: Final = "moorage_start_failures_total"
ENDINGS: Final = "moorage_endings_total"
LEFTOVERS: Final = "moorage_leftovers_total"
CPU: Final = "moorage_cpu_seconds_total"
START: Final = "moorage_start_seconds"
PHASE: Final = "moorage_start_phase_seconds"
# In seconds. One more bucket has everything that took longer.
BOUNDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600)
# Of a family. Its labels are words of ours, so only a mistake can bring more.
MOST_SERIES: Final = 200
REST: Final = "other"
UNKNOWN: Final = "unknown"

Labels = tuple[str, ...]
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9 _-]{0,40}")
_SEPARATOR: Final = ","
_LOCKING: Final = 2.0
_ASK_AGAIN: Final = 0.01


@dataclass
class Spread:
    """A histogram: the number of values between each bound and the one before."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.sum = round(self.sum + seconds, 3)


@dataclass
class Tally:
    counts: dict[str, dict[Labels, float]] = field(default_factory=dict)
    spreads: dict[str, dict[Labels, Spread]] = field(default_factory=dict)

    def count(self, of: Mapping[str, Any]) -> None:
        """Count one more job."""
        cluster, outcome = cluster_of(of), str(of["outcome"])
        self._add(STARTS, (cluster, outcome))
        if outcome in ("refused", "failed"):
            self._add(FAILURES, ("prolog" if outcome == "refused" else "start", str(of.get("check") or of["phase"])))
        if ending := of.get("ending"):
            self._add(ENDINGS, (ending,))
        for leftover in of.get("leftovers", ()):
            self._add(LEFTOVERS, (leftover["what"],))
        if usage := of.get("usage"):
            self._add(CPU, (cluster,), usage["cpu_seconds"])
        if of.get("start_seconds") is not None:
            self._spread(START, (cluster,), of["start_seconds"])
        for phase, seconds in of.get("phases", {}).items():
            self._spread(PHASE, (phase,), seconds)

    def as_json(self) -> str:
        return json.dumps(
            {
                "counts": {family: _joined(series) for family, series in self.counts.items()},
                "spreads": {
                    family: _joined({labels: vars(spread) for labels, spread in series.items()})
                    for family, series in self.spreads.items()
                },
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A ValueError, TypeError or LookupError if the text is not that of a Tally."""
        content = json.loads(text)
        spreads = {
            family: {labels: Spread(**fields) for labels, fields in _parted(series).items()}
            for family, series in content["spreads"].items()
        }
        if any(len(one.buckets) != len(BOUNDS) + 1 for series in spreads.values() for one in series.values()):
            raise ValueError("of another release, with other bounds")
        return cls({family: _parted(series) for family, series in content["counts"].items()}, spreads)

    def _add(self, family: str, labels: Labels, amount: float = 1) -> None:
        series = self.counts.setdefault(family, {})
        labels = _known(labels, series)
        series[labels] = round(series.get(labels, 0) + amount, 3)

    def _spread(self, family: str, labels: Labels, seconds: float) -> None:
        series = self.spreads.setdefault(family, {})
        series.setdefault(_known(labels, series), Spread()).add(max(0.0, seconds))


def cluster_of(record: Mapping[str, Any]) -> str:
    """The label for what the job asked for: kind, none, or unknown."""
    spec = record.get("spec")
    return str(spec.get("cluster", UNKNOWN)) if isinstance(spec, dict) else UNKNOWN


@contextmanager
def kept() -> Iterator[Tally]:
    """The counters, for one process at a time. They are written back: after a crash the file is the old or the new."""
    path = job.STATE.with_name("tally.json")
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _alone(path.with_suffix(".lock")):
        tally = _read(path)
        before = tally.as_json()
        yield tally
        if (after := tally.as_json()) != before:
            files.replace(path, after)


def _read(path: Path) -> Tally:
    """The counters in the file; zeros if it is missing or damaged: readers of counters know that they can restart."""
    with suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
        return Tally.from_json(files.private(path))
    return Tally()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock of the counters. A process holds it while it writes two small files."""
    with flock.opened(path) as descriptor:
        if not flock.lock(descriptor, flock.EXCLUSIVE, Deadline(_LOCKING), retry=0.01):
            raise MoorageError(f"{path} is held by another process: see `fuser {path}`")
        yield


def _known(labels: Labels, series: Mapping[Labels, object]) -> Labels:
    plain = tuple(label if _WORD.fullmatch(label) else REST for label in labels)
    return plain if plain in series or len(series) < MOST_SERIES else (REST,) * len(labels)


def _joined(series: Mapping[Labels, Any]) -> dict[str, Any]:
    return {_SEPARATOR.join(labels): value for labels, value in series.items()}


def _parted(series: Mapping[str, Any]) -> dict[Labels, Any]:
    return {tuple(labels.split(_SEPARATOR)): value for labels, value in series.items()}
