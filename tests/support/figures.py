"""Measured figures beside what was promised of them: printed after the tests, kept for the report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

KEPT_IN = "MOORAGE_FIGURES"


@dataclass(frozen=True)
class Figure:
    what: str
    measured: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def holds(self) -> bool:
        above = self.at_least is None or self.measured >= self.at_least
        return above and (self.at_most is None or self.measured <= self.at_most)

    @property
    def promise(self) -> str:
        bounds = (("at most", self.at_most), ("at least", self.at_least))
        return ", ".join(f"{word} {bound:g} {self.unit}".strip() for word, bound in bounds if bound is not None)

    @property
    def shown(self) -> str:
        """Ratios differ in the second place behind the point; what is counted has none."""
        places = 1 if self.unit else 0 if self.measured == int(self.measured) else 2
        return f"{self.measured:.{places}f} {self.unit}".strip()

    def __str__(self) -> str:
        return f"{self.what}: {self.shown} ({self.promise or 'no promise'})"


class Figures:
    """Collects figures; with MOORAGE_FIGURES set, every one is appended to that file at once."""

    def __init__(self) -> None:
        self.all: list[Figure] = []

    def add(
        self, what: str, measured: float, unit: str, *, at_most: float | None = None, at_least: float | None = None
    ) -> None:
        """Keep a figure, and fail where it breaks its promise."""
        figure = Figure(what, measured, unit, at_most, at_least)
        self.all.append(figure)
        keep(figure)
        assert figure.holds, str(figure)


def keep(figure: Figure) -> None:
    """For the report, if there will be one."""
    if kept_in := os.environ.get(KEPT_IN):
        with Path(kept_in).open("a") as file:
            file.write(json.dumps(asdict(figure)) + "\n")


def table(figures: Iterable[Figure]) -> str:
    """As Markdown, for the report."""
    rows = (f"| {f.what} | {f.shown} | {f.promise or '-'} |" for f in figures)
    return "\n".join(["| what | measured | promised |", "|---|---|---|", *rows])
