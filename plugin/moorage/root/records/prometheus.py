"""The node's metrics: a text file for the textfile collector of node_exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from moorage import __version__
from moorage.common import files, phases
from moorage.common.errors import MoorageError
from moorage.root import state
from moorage.root.records import counters
from moorage.root.records.counters import BOUNDS, Labels, Spread, Tally

FILE: Final = "moorage.prom"
RUNNING: Final = "moorage_clusters_running"
LEFT: Final = "moorage_leftover_jobs"
BUILD: Final = "moorage_build_info"

CLUSTERS: Final = ("kind", "none")
# The Prolog's checks that refuse users most often.
USUAL: Final = ("policy", "scratch", "spec", "subgid", "subuid", "uplink", "user")


@dataclass(frozen=True)
class Family:
    """`first` are the series that start at 0: Prometheus does not see an increase of a series that is new."""

    kind: str
    help: str
    labels: Labels = ()
    first: tuple[Labels, ...] = ()


def _each(*values: Sequence[str]) -> tuple[Labels, ...]:
    return tuple(product(*values))


FAMILIES: Final[Mapping[str, Family]] = {
    counters.STARTS: Family(
        "counter",
        "Jobs with --k8s that are over, by what became of their start.",
        ("cluster", "outcome"),
        _each(CLUSTERS, ("ready", "failed", "refused", "unfinished")),
    ),
    counters.FAILURES: Family(
        "counter",
        "Starts that failed: refused by the Prolog, by its check, or failed later, by phase.",
        ("stage", "cause"),
        _each(["prolog"], USUAL) + _each(["start"], phases.SPANS),
    ),
    counters.ENDINGS: Family(
        "counter",
        "How jobs that were prepared ended on this node.",
        ("ending",),
        _each(("orderly", "cut off", "abandoned", "reboot")),
    ),
    counters.LEFTOVERS: Family(
        "counter",
        "What an Epilog or a sweep could not remove at once.",
        ("what",),
        _each(("mount", "run directory", "scratch", "cgroup", "process", "network")),
    ),
    counters.CPU: Family("counter", "CPU time that containers have used.", ("cluster",), _each(CLUSTERS)),
    counters.START: Family(
        "histogram", "From the beginning of the Prolog until the job was ready.", ("cluster",), _each(CLUSTERS)
    ),
    counters.PHASE: Family("histogram", "Each phase of a start that came to its end.", ("phase",), _each(phases.SPANS)),
    RUNNING: Family("gauge", "Jobs with --k8s between their Prolog and their Epilog.", ("cluster",), _each(CLUSTERS)),
    LEFT: Family("gauge", "Jobs that are over, and have left something that a sweep has yet to remove.", first=((),)),
    BUILD: Family("gauge", "1, for the release that wrote this.", ("version",)),
}


def count(of: Mapping[str, Any]) -> None:
    """Count one more job that is over."""
    with counters.kept() as kept:
        kept.count(of)


def publish(directory: Path) -> None:
    """Write the file anew."""
    # Under the lock: who reads the counters later must write the file later.
    with counters.kept() as kept:
        files.replace(directory / FILE, text(kept, gauges()), 0o644)


def gauges() -> dict[str, dict[Labels, float]]:
    """The gauges, by the states of jobs."""
    running: dict[Labels, float] = {}
    left = 0
    for number in state.jobs():
        try:
            known = state.load(number)
        except MoorageError:
            left += 1
            continue
        if known and known.abandoned:
            left += 1
        elif known:
            labels = (counters.cluster_of(known.about.described if known.about else {}),)
            running[labels] = running.get(labels, 0) + 1
    return {RUNNING: running, LEFT: {(): left}, BUILD: {(__version__,): 1}}


def text(kept: Tally, now: Mapping[str, Mapping[Labels, float]]) -> str:
    """The exposition format, which ends with a newline."""
    return "".join(line + "\n" for name, family in FAMILIES.items() for line in _lines(name, family, kept, now))


def _lines(name: str, family: Family, kept: Tally, now: Mapping[str, Mapping[Labels, float]]) -> Iterator[str]:
    yield f"# HELP {name} {family.help}"
    yield f"# TYPE {name} {family.kind}"
    if family.kind == "histogram":
        for labels, spread in _all(family, kept.spreads.get(name, {}), Spread()).items():
            yield from _spread(name, dict(zip(family.labels, labels, strict=True)), spread)
    else:
        source = now if family.kind == "gauge" else kept.counts
        for labels, value in _all(family, source.get(name, {}), 0).items():
            yield _sample(name, dict(zip(family.labels, labels, strict=True)), value)


def _all(family: Family, series: Mapping[Labels, Any], nothing: object) -> dict[Labels, Any]:
    """The series, with those that start at 0."""
    there = {**dict.fromkeys(family.first, nothing), **series}
    return {labels: value for labels, value in there.items() if len(labels) == len(family.labels)}


def _spread(name: str, labels: Mapping[str, str], spread: Spread) -> Iterator[str]:
    so_far = 0
    for bound, number in zip((*map(_number, BOUNDS), "+Inf"), spread.buckets, strict=True):
        so_far += number
        yield _sample(f"{name}_bucket", {**labels, "le": bound}, so_far)
    yield _sample(f"{name}_sum", labels, spread.sum)
    yield _sample(f"{name}_count", labels, so_far)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
