"""The text format in which Prometheus reads metrics, read strictly: what it would refuse is an error here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
KINDS: Final = ("counter", "gauge", "histogram", "summary", "untyped")

_SAMPLE: Final = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)')
_PARTS: Final = {"histogram": ("_bucket", "_sum", "_count")}

Labels = frozenset[tuple[str, str]]


@dataclass
class Family:
    name: str
    help: str
    kind: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def read(text: str) -> dict[str, Family]:
    """Every family, each of its lines together; a ValueError for everything else."""
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    families: dict[str, Family] = {}
    family = None
    for line in text.removesuffix("\n").split("\n"):
        match line.split(" ", 3):
            case ["#", "HELP", name, words]:
                if name in families or not re.fullmatch(NAME, name):
                    raise ValueError(f"a second or wrong name: {line}")
                family = families[name] = Family(name, words)
            case ["#", "TYPE", name, kind]:
                if family is None or family.name != name or family.kind or family.samples or kind not in KINDS:
                    raise ValueError(f"a type in the wrong place: {line}")
                family.kind = kind
            case _:
                if family is None or not family.kind:
                    raise ValueError(f"a sample without its family: {line}")
                _sample(family, line)
    for family in families.values():
        _check(family)
    return families


def _sample(family: Family, line: str) -> None:
    found = _SAMPLE.fullmatch(line)
    if not found:
        raise ValueError(f"no sample: {line}")
    name, inside, value = found.groups()
    if name not in [family.name + part for part in _PARTS.get(family.kind, ("",))]:
        raise ValueError(f"a sample of another family: {line}")
    pairs = list(_labels(inside or ""))
    key = (name, frozenset(pairs))
    if key in family.samples or len(dict(pairs)) < len(pairs):
        raise ValueError(f"the same twice: {line}")
    family.samples[key] = float(value)


def _labels(inside: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(inside):
        found = _LABEL.match(inside, position)
        if not found:
            raise ValueError(f"no labels: {inside}")
        yield found[1], found[2]
        position = found.end()


def _check(family: Family) -> None:
    """What the format leaves to those who write it, and the conventions for names."""
    if not family.name.startswith("moorage_") or not family.help:
        raise ValueError(f"{family.name}: no name or help")
    if (family.kind == "counter") != family.name.endswith("_total"):
        raise ValueError(f"{family.name}: counters, and they alone, end in _total")
    if family.kind in ("counter", "histogram") and any(value < 0 for value in family.samples.values()):
        raise ValueError(f"{family.name}: less than nothing")
    if family.kind == "histogram":
        _check_histogram(family)


def _check_histogram(family: Family) -> None:
    series: dict[Labels, dict[float, float]] = {}
    for (name, labels), value in family.samples.items():
        if name == f"{family.name}_bucket":
            (bound,) = [bound for label, bound in labels if label == "le"]
            rest = frozenset(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, {})[float(bound)] = value
    for labels, buckets in series.items():
        counts = [count for _, count in sorted(buckets.items())]
        if counts != sorted(counts) or math.inf not in buckets:
            raise ValueError(f"{family.name}: buckets are not cumulative")
        if family.samples.get((f"{family.name}_count", labels)) != buckets[math.inf]:
            raise ValueError(f"{family.name}: the count is not that of the last bucket")
        if (f"{family.name}_sum", labels) not in family.samples:
            raise ValueError(f"{family.name}: no sum")
