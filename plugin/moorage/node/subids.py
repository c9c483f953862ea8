"""Checks of a user's subordinate ids: enough of them, and nobody else's."""

from __future__ import annotations

import grp
import pwd
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from moorage.common.command import run
from moorage.common.job import LARGEST_ID, Job
from moorage.linux.idmap import Range
from moorage.node.finding import Finding
from moorage.node.hostfiles import Node

ENOUGH: Final = 65536
# Directories of users often start at a multiple of this.
ROUND: Final = 10000
MOST_PROBES: Final = 64
# One mistake of the program that wrote the file can be in thousands of lines.
MOST_TOLD: Final = 10
LIMIT: Final = 30.0
LOCAL_SOURCES: Final = frozenset({"altfiles", "compat", "files", "systemd"})


@dataclass(frozen=True)
class Kind:
    """User ids or group ids: how to ask for ranges, and for the owner of an id."""

    name: str
    file: str
    query: tuple[str, ...]
    known: str
    look_up: Callable[[int], object]


UIDS: Final = Kind("uid", "/etc/subuid", ("getsubids",), "passwd", pwd.getpwuid)
GIDS: Final = Kind("gid", "/etc/subgid", ("getsubids", "-g"), "group", grp.getgrgid)


def ranges(kind: Kind, user: str) -> list[Range]:
    """The ranges of the user, from the node's source: files or a directory of users."""
    # It ends with 1 where there are none.
    return parse(run([*kind.query, user], limit=LIMIT, ok=(0, 1)).stdout)


def granted(user: str) -> dict[str, list[Range]]:
    return {kind.name: ranges(kind, user) for kind in (UIDS, GIDS)}


def parse(said: str) -> list[Range]:
    """The lines of getsubids: "0: alice 100000 65536"."""
    words = [line.split() for line in said.splitlines()]
    return [Range(int(line[-2]), int(line[-1])) for line in words if len(line) == 4 and "".join(line[-2:]).isdecimal()]


def check(kind: Kind, job: Job, given: Sequence[Range], node: Node) -> Iterator[Finding]:
    """Findings unless one range is large enough and no range meets another's: Podman uses all of them."""
    if all(one.count < ENOUGH for one in given):
        most = max((one.count for one in given), default=0)
        cause = f"user {job.user} has {f'only {most}' if most else 'no'} subordinate {kind.name}s on this node"
        remedy = f"ask the administrator for a range of {ENOUGH} ({kind.file}, or the directory of users)"
        yield Finding(f"sub{kind.name}", cause, remedy, "user", code="M-SUBID-1")
        return
    for one in given:
        if conflict := next(_conflicts(kind, job, one, node), None):
            cause = f"the subordinate {kind.name}s {one} of user {job.user} {conflict}"
            yield Finding(
                f"sub{kind.name}", cause, f"ask the administrator to move them ({kind.file})", "user", code="M-SUBID-2"
            )


def _conflicts(kind: Kind, job: Job, one: Range, node: Node) -> Iterator[str]:
    if one.start < 1 or one.end - 1 > LARGEST_ID:
        yield "are not all possible ids"
    for owner, other in _granted(node.text(kind.file)):
        if owner not in (job.user, str(job.uid)) and one.meets(other):
            yield f"meet {other} of {owner}"
    for number in (*_listed(node.text(f"/etc/{kind.known}")), job.uid, job.gid):
        if number in one:
            yield f"contain {number}, which is a real {kind.name}"
    if _asks_a_directory(kind, node.text("/etc/nsswitch.conf")):
        for number in probes(one):
            with suppress(KeyError):
                kind.look_up(number)
                yield f"contain {number}, which is a real {kind.name}"


def whole(kind: Kind, node: Node) -> Iterator[Finding]:
    """Findings about the node's own file, for the ranges of all users."""
    real = sorted(_listed(node.text(f"/etc/{kind.known}")))
    ranges = sorted(_granted(node.text(kind.file)), key=lambda given: given[1].start)
    causes = chain(_meetings(kind, ranges), _contents(kind, ranges, real))
    for cause in islice(causes, MOST_TOLD):
        yield Finding(
            f"sub{kind.name}", f"{kind.file}: {cause}", "move one of them to where nobody's are", code="M-SUBID-3"
        )


def _meetings(kind: Kind, ranges: Sequence[tuple[str, Range]]) -> Iterator[str]:
    """Ranges of different users that meet. They come sorted by start, so only the furthest end matters."""
    furthest: tuple[str, Range] | None = None
    for owner, one in ranges:
        if furthest and one.meets(furthest[1]) and not _same(owner, furthest[0]):
            yield f"the {kind.name}s {one} of {owner} meet {furthest[1]} of {furthest[0]}"
        if furthest is None or one.end > furthest[1].end:
            furthest = owner, one


def _contents(kind: Kind, ranges: Sequence[tuple[str, Range]], real: Sequence[int]) -> Iterator[str]:
    for owner, one in ranges:
        at = bisect_left(real, one.start)
        if at < len(real) and real[at] in one:
            yield f"the {kind.name}s {one} of {owner} contain {real[at]}, which is a real {kind.name}"


def _same(one: str, other: str) -> bool:
    """Whether both are the same user, by name or by number."""
    return one == other or _number(one) == _number(other)


def _number(owner: str) -> int | str:
    if owner.isdecimal():
        return int(owner)
    with suppress(KeyError):
        return pwd.getpwnam(owner).pw_uid
    return owner


def probes(one: Range) -> list[int]:
    """The ids to ask a directory for, which does not list all of its ids: both ends, and each round number."""
    first_round = -(-one.start // ROUND) * ROUND
    return sorted({one.start, one.end - 1, *range(first_round, one.end, ROUND)})[:MOST_PROBES]


def _granted(text: str) -> Iterator[tuple[str, Range]]:
    """The lines of /etc/subuid or /etc/subgid: owner:start:count."""
    for line in text.splitlines():
        match line.strip().split(":"):
            case [owner, start, count] if start.isdecimal() and count.isdecimal():
                yield owner, Range(int(start), int(count))


def _listed(text: str) -> Iterator[int]:
    """The ids in /etc/passwd or /etc/group, the third field."""
    words = (line.split(":") for line in text.splitlines())
    return (int(line[2]) for line in words if len(line) > 2 and line[2].isdecimal())


def _asks_a_directory(kind: Kind, nsswitch: str) -> bool:
    """Whether accounts also come from another source than this node's files."""
    lines = (line.partition("#")[0].lower().partition(":") for line in nsswitch.splitlines())
    sources = {word for name, _, words in lines if name.strip() == kind.known for word in words.split()}
    return not sources <= LOCAL_SOURCES
