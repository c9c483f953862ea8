"""The lines that have a code: what each says, why, and what to do. They are data of the package, in codes.toml.

A code is M-AREA-N. It stands for one line for ever: the code of a line that is gone is not given to another one.
Hooks and jobs print codes, and do not read this.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Self

DATA: Final = "codes.toml"


@dataclass(frozen=True)
class Entry:
    """`line` is the text without its remedy; it has an ellipsis where names and figures are filled in."""

    code: str
    line: str
    why: str
    do: str


@dataclass(frozen=True)
class Area:
    name: str
    title: str
    entries: Mapping[str, Entry]


@dataclass(frozen=True)
class Catalogue:
    areas: Mapping[str, Area]

    @classmethod
    def load(cls) -> Self:
        return cls.of(files("moorage.common").joinpath(DATA).read_text())

    @classmethod
    def of(cls, text: str) -> Self:
        areas = ((name, _area(name, **fields)) for name, fields in tomllib.loads(text).items())
        return cls(dict(areas))

    def __iter__(self) -> Iterator[Entry]:
        return (entry for area in self.areas.values() for entry in area.entries.values())


def _area(name: str, title: str, **lines: Mapping[str, str]) -> Area:
    entries = (Entry(f"M-{name}-{number}", **fields) for number, fields in lines.items())
    return Area(name, title, {entry.code: entry for entry in entries})
