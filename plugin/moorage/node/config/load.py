"""Load a configuration file: check every value, and say what is wrong with each bad one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from moorage.common.errors import UserError
from moorage.node.config.schema import Config, Kind, known_keys, made
from moorage.node.config.values import Entry, Reader, overlap
from moorage.node.factcache import Facts, stamp

PLACE: Final = Path("/etc/moorage/moorage.yaml")

# Networks that each job has for itself. What is in two of them, its containers reach in one only.
NETWORKS: Final = ("podman.pool", "fabric.subnet", "kubernetes.pods", "kubernetes.services", "uplink.pool")
# A line names at most so many settings: more, nobody reads.
MOST_LISTED: Final = 8
# How much a name must be like one of another section to be taken for it, from 0 to 1.
ALIKE: Final = 0.8


def load(path: Path | None = None, facts: Facts | None = None) -> Config:
    """The configuration in this file; the defaults if there is none. With `facts`, a file is parsed only once."""
    path = path or PLACE
    return build(entries(path, facts or Facts()), path)


def examine(path: Path | None = None, facts: Facts | None = None) -> tuple[Config, list[UserError]]:
    """The configuration, and everything that is wrong in it; the defaults if the file cannot be read at all."""
    path = path or PLACE
    try:
        return whole(entries(path, facts or Facts()), path)
    except UserError as fault:
        return Config(), [fault]


def entries(path: Path, facts: Facts) -> list[Entry]:
    """Every value in the file; none if there is no file."""
    if not path.exists():
        return []
    remembered = facts.recall(f"configuration {path}", stamp(path), lambda: _parsed(path))
    return [Entry(*entry) for entry in remembered]


def _parsed(path: Path) -> list[tuple[str, Any, int]]:
    # YAML alone takes longer to import than a hook may take.
    from moorage.node.config.yamlfile import entries

    return [(entry.name, entry.value, entry.line) for entry in entries(path)]


def build(given: Iterable[Entry], path: Path) -> Config:
    """The configuration of these values; the first error is raised."""
    config, faults = whole(given, path)
    if faults:
        raise faults[0]
    return config


def whole(given: Iterable[Entry], path: Path) -> tuple[Config, list[UserError]]:
    """The configuration of the good values, and the errors: bad values, and networks that overlap."""
    config, faults = checked(Config, given, path)
    return config, [*faults, *_overlaps(config)]


def _overlaps(config: Config) -> Iterator[UserError]:
    for one, other in combinations(NETWORKS, 2):
        ours, theirs = attrgetter(one, other)(config)
        if overlap(ours, theirs):
            place = config.sources.get(one) or config.source(other)
            yield UserError(
                f"{place}: {one} is {ours}, and {other} is {theirs}",
                "give each a network of its own",
                code="M-CONFIG-1",
            )


def checked(kind: type[Kind], given: Iterable[Entry], path: Path, /, **more: Any) -> tuple[Kind, list[UserError]]:  # noqa: ANN401
    """An instance of `kind` with the good values, and an error for each other one."""
    known = known_keys(kind)
    sections = {name.rpartition(".")[0] for name in known}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    faults: list[UserError] = []
    for entry in given:
        if entry.value is None and entry.name in sections:
            # A section without keys.
            continue
        place = f"{path}:{entry.line}"
        try:
            values[entry.name] = _value(place, entry, _reader(place, entry.name, known))
            sources[entry.name] = place
        except UserError as fault:
            faults.append(fault)
    return made(kind, values, sources=sources, **more), faults


def _reader(place: str, name: str, known: Mapping[str, Reader]) -> Reader:
    if name in known:
        return known[name]
    raise UserError(f"{place}: there is no key {name}", _meant(name, known), code="M-CONFIG-2")


def _meant(name: str, known: Iterable[str]) -> str:
    """The key that was probably meant, else those of the same section."""
    section = name.rpartition(".")[0]
    every = list(known)
    beside = [other for other in every if other.rpartition(".")[0] == section]
    if guess := _guess(name, beside) or _guess(name, every, ALIKE):
        return f"did you mean {guess}?"
    if 0 < len(beside) <= MOST_LISTED and (section or len(beside) == len(every)):
        return f"use one of {', '.join(beside)}"
    return "`moorage config show` lists all keys"


def _guess(name: str, known: Sequence[str], alike: float = 0.6) -> str:
    """The key that was probably meant; names of the same section are compared without it."""
    # Only here: hooks read configurations, and most have no wrong name.
    from difflib import get_close_matches

    section = name.rpartition(".")[0]
    prefix = f"{section}." if section and all(other.startswith(f"{section}.") for other in known) else ""
    shorter = [other.removeprefix(prefix) for other in known]
    return "".join(prefix + close for close in get_close_matches(name.removeprefix(prefix), shorter, 1, alike))


def _value(place: str, entry: Entry, reader: Reader) -> object:
    try:
        return reader(entry.value)
    except ValueError as error:
        given = "empty" if entry.value is None else repr(entry.value)
        raise UserError(f"{place}: {entry.name} is {given}", f"give {error}", code="M-CONFIG-3") from None
