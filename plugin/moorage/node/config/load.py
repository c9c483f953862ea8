"""Load a configuration file: check every value, and tell what is wrong with the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from moorage.common.errors import UserError
from moorage.node.config.schema import Config, Kind, section_of, settings
from moorage.node.config.values import Reader, overlap
from moorage.node.factcache import Facts, stamp

PLACE: Final = Path("/etc/moorage/moorage.yaml")

# Of each job's own: what is in two of them, its containers reach in one.
NETWORKS: Final = ("podman.pool", "fabric.subnet", "kubernetes.pods", "kubernetes.services", "uplink.pool")
# A line names at most so many settings: more, nobody reads.
MOST_LISTED: Final = 8
# How much a name must be like one of another section to be taken for it, from 0 to 1.
ALIKE: Final = 0.8


@dataclass(frozen=True)
class Entry:
    """One value in a configuration file."""

    name: str
    value: Any
    line: int


def load(path: Path | None = None, facts: Facts | None = None) -> Config:
    """The configuration in this file; all defaults where there is none. With `facts`, a file is parsed but once."""
    path = path or PLACE
    return build(entries(path, facts or Facts()), path)


def examine(path: Path | None = None, facts: Facts | None = None) -> tuple[Config, list[UserError]]:
    """What the file sets, and everything that is wrong in it; all defaults where there is no sense in it at all."""
    path = path or PLACE
    try:
        return whole(entries(path, facts or Facts()), path)
    except UserError as fault:
        return Config(), [fault]


def entries(path: Path, facts: Facts) -> list[Entry]:
    """Every value in the file; none where there is no file."""
    if not path.exists():
        return []
    remembered = facts.recall(f"configuration {path}", stamp(path), lambda: _parsed(path))
    return [Entry(*entry) for entry in remembered]


def _parsed(path: Path) -> list[tuple[str, Any, int]]:
    # YAML alone takes longer to import than a hook may take.
    from moorage.node.config.yamlfile import entries

    return [(entry.name, entry.value, entry.line) for entry in entries(path)]


def build(given: Iterable[Entry], path: Path) -> Config:
    """A configuration of these values, each of them checked; the first fault is raised."""
    config, faults = whole(given, path)
    if faults:
        raise faults[0]
    return config


def whole(given: Iterable[Entry], path: Path) -> tuple[Config, list[UserError]]:
    """A configuration of those values that are right, and what is wrong with others, or with some beside each other."""
    config, faults = checked(Config, given, path)
    return config, [*faults, *_overlaps(config)]


def _overlaps(config: Config) -> Iterator[UserError]:
    for one, other in combinations(NETWORKS, 2):
        ours, theirs = attrgetter(one, other)(config)
        if overlap(ours, theirs):
            place = config.sources.get(one) or config.source(other)
            yield UserError(f"{place}: {one} is {ours}, and {other} is {theirs}", "give each a network of its own")


def checked(kind: type[Kind], given: Iterable[Entry], path: Path, /, **more: Any) -> tuple[Kind, list[UserError]]:  # noqa: ANN401
    """A configuration of this kind of those values that are right, and what is wrong with the others."""
    known = settings(kind)
    sections = {name.rpartition(".")[0] for name in known}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    faults: list[UserError] = []
    for entry in given:
        if entry.value is None and entry.name in sections:
            # Nothing but comments below its name.
            continue
        place = f"{path}:{entry.line}"
        try:
            values[entry.name] = _value(place, entry, _declared(place, entry.name, known).metadata["read"])
            sources[entry.name] = place
        except UserError as fault:
            faults.append(fault)
    return _filled(kind, values, "", sources=sources, **more), faults


def _declared(place: str, name: str, known: Mapping[str, Field[Any]]) -> Field[Any]:
    if name in known:
        return known[name]
    section = name.rpartition(".")[0]
    beside = [other for other in known if other.rpartition(".")[0] == section]
    if guess := _guess(name, beside) or _guess(name, list(known), ALIKE):
        remedy = f"did you mean {guess}?"
    elif 0 < len(beside) <= MOST_LISTED and (section or len(beside) == len(known)):
        remedy = f"use one of {', '.join(beside)}"
    else:
        remedy = "`moorage config show` lists all settings"
    raise UserError(f"{place}: there is no setting {name}", remedy)


def _guess(name: str, known: Sequence[str], alike: float = 0.6) -> str:
    """The setting that was probably meant; names of the same section are compared without it."""
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
        raise UserError(f"{place}: {entry.name} is {given}", f"give {error}") from None


def _filled(kind: type[Any], values: Mapping[str, Any], prefix: str = "", **more: object) -> Any:  # noqa: ANN401
    """An instance of `kind` with these values, and its own defaults for the others."""
    given = dict(more)
    for declared in fields(kind):
        name = prefix + declared.name
        if name in values:
            given[declared.name] = values[name]
        elif section := section_of(declared):
            given[declared.name] = _filled(section, values, f"{name}.")
    return kind(**given)
