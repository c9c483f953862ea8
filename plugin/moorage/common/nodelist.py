"""The names of a job's nodes, out of the short form in which Slurm writes them: n[1-3,07-10],gpu[1-2]-ib[0-1].

slurmctld could say them, too; but a hook that asks slurmctld waits while all nodes of a large job ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from moorage.common.errors import MoorageError

LONGEST: Final = 1 << 16
LONGEST_NAME: Final = 255
SHOWN: Final = 40

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENTRY: Final = re.compile(r"(?:[A-Za-z0-9._-]|\[[0-9,-]+\])+")
_PIECE: Final = re.compile(r"\[([0-9,-]+)\]|([A-Za-z0-9._-]+)")
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class BadNodeList(MoorageError):
    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"the node list {_shown(text)} is not understood: {reason}")


@dataclass(frozen=True)
class Numbers:
    """A range of numbers, written with as many digits as its first."""

    numbers: range
    width: int

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return (str(number).zfill(self.width) for number in self.numbers)


# What may stand at one place of a name; ranges stay ranges until their length is known to be bearable.
Choices = list[Numbers] | list[list[str]]


def expand(text: str, most: int) -> list[str]:
    """All names in order; BadNodeList if this is no list, or one of more than `most`."""
    if len(text) > LONGEST:
        raise BadNodeList(text, f"it is {len(text)} characters long, {LONGEST} are allowed")
    entries = [_places(text, entry) for entry in _entries(text)]
    # Not named in the refusal: so large a number as can be asked for here is slow to write.
    if sum(prod(sum(map(len, place)) for place in places) for places in entries) > most:
        raise BadNodeList(text, f"it names more than {most} nodes")
    names = [name for places in entries for name in _names(places)]
    for name in names:
        if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            raise BadNodeList(text, f"{_shown(name)} is no name of a node")
    if len(set(names)) < len(names):
        raise BadNodeList(text, "it names a node twice")
    return names


def _entries(text: str) -> Iterator[str]:
    """What stands between the commas that are not in brackets."""
    place = 0
    while entry := _ENTRY.match(text, place):
        yield entry[0]
        place = entry.end()
        if place == len(text):
            return
        if text[place] != ",":
            raise BadNodeList(text, f"character {place + 1} does not belong there")
        place += 1
    raise BadNodeList(text, f"there is no name at character {place + 1}")


def _places(text: str, entry: str) -> list[Choices]:
    """The text and the brackets that an entry is made of."""
    return [_numbers(text, piece[1]) if piece[1] else [[piece[2]]] for piece in _PIECE.finditer(entry)]


def _numbers(text: str, inside: str) -> list[Numbers]:
    ranges = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise BadNodeList(text, f"{_shown(part)} is no range of numbers")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise BadNodeList(text, f"the range {part} runs backwards")
        ranges.append(Numbers(range(first, last + 1), len(match[1])))
    return ranges


def _names(places: list[Choices]) -> Iterator[str]:
    """The last place changes first, as Slurm has it."""
    words = [[word for choice in place for word in choice] for place in places]
    return ("".join(name) for name in product(*words))


def _shown(text: str) -> str:
    return ascii(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
