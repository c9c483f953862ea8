"""Idmapped mounts (Linux 5.12): files appear with other owners than on disk."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Self

from moorage.linux import libc

READ_ONLY: Final = 0x1
NOSUID: Final = 0x2
NODEV: Final = 0x4

_CLONE: Final = 1
# struct mount_attr: flags to set, flags to clear, propagation, user namespace.
_ATTRIBUTES: Final = struct.Struct("=4Q")
_IDMAP: Final = 0x00100000
_PRIVATE: Final = 1 << 18
# The most lines that the kernel takes in one map.
MOST_LINES: Final = 340


@dataclass(frozen=True)
class Range:
    """The ids from `start` on, `count` of them."""

    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count

    def meets(self, other: Self) -> bool:
        return self.start < other.end and other.start < self.end

    def __contains__(self, number: int) -> bool:
        return self.start <= number < self.end

    def __str__(self) -> str:
        return f"{self.start}-{self.end - 1}"


@dataclass(frozen=True)
class Line:
    """The `count` ids from `disk` on appear as those from `shown` on."""

    disk: int
    shown: int
    count: int

    def __str__(self) -> str:
        return f"{self.disk} {self.shown} {self.count}"


@dataclass(frozen=True)
class Owners:
    """The maps of user ids and group ids for one user."""

    uids: tuple[Line, ...]
    gids: tuple[Line, ...]


def lines(own: int, given: Sequence[Range]) -> tuple[Line, ...]:
    """The map that Podman uses: root on disk is the user, the ids after root are the subordinate ones in order."""
    found = [Line(0, own, 1)]
    for one in given[: MOST_LINES - 1]:
        last = found[-1]
        found.append(Line(last.disk + last.count, one.start, one.count))
    return tuple(found)


def shown(number: int, map_: Sequence[Line]) -> int | None:
    """The id as which an id on disk appears; None if the map does not have it."""
    return next((line.shown + number - line.disk for line in map_ if 0 <= number - line.disk < line.count), None)


@contextmanager
def user_namespace(owners: Owners) -> Iterator[int]:
    """The descriptor of a user namespace with these maps, in which no process runs."""
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        _wait_in_namespace(told)
    try:
        os.close(told)
        if os.read(ready, 1) != b"1":
            raise OSError("the kernel gives no user namespace: see user.max_user_namespaces")
        for name, map_ in (("uid_map", owners.uids), ("gid_map", owners.gids)):
            Path(f"/proc/{child}/{name}").write_text("".join(f"{line}\n" for line in map_))
        descriptor = os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_in_namespace(told: int) -> NoReturn:
    """Run in the child of a fork: nothing here may need a lock that the parent held."""
    try:
        libc.unshare(libc.NEW_USER)
        answer = b"1"
    except OSError:
        answer = b"0"
    os.write(told, answer)
    while True:
        signal.pause()


@contextmanager
def detached(tree: Path) -> Iterator[int]:
    """A copy of a mount that is not attached yet; it ends with the block unless it is attached by then."""
    descriptor = libc.open_tree(tree, _CLONE | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def change(mount: int, tree: Path, flags: int, namespace: int | None = None) -> None:
    """Set flags of a detached mount, make it private, and map its owners if there is a namespace."""
    wanted = _ATTRIBUTES.pack(flags | (0 if namespace is None else _IDMAP), 0, _PRIVATE, namespace or 0)
    libc.mount_setattr(mount, wanted, tree)


def attach(mount: int, point: Path) -> None:
    libc.move_mount(mount, point)
