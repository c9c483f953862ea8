"""Mounts whose owners are others than those on disk, made by the calls of Linux 5.12."""

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
# The kernel takes no more lines in one map.
MOST_LINES: Final = 340


@dataclass(frozen=True)
class Line:
    """`count` ids from `disk` on appear as those from `shown` on."""

    disk: int
    shown: int
    count: int

    def __str__(self) -> str:
        return f"{self.disk} {self.shown} {self.count}"


@dataclass(frozen=True)
class Owners:
    """Who the owners on disk are for one user."""

    uids: tuple[Line, ...]
    gids: tuple[Line, ...]


def lines(own: int, given: Sequence[Range]) -> tuple[Line, ...]:
    """Root on disk is the user, and the ids after it are his subordinate ones, in Podman's order."""
    found = [Line(0, own, 1)]
    for one in given[: MOST_LINES - 1]:
        last = found[-1]
        found.append(Line(last.disk + last.count, one.start, one.count))
    return tuple(found)


def shown(number: int, map_: Sequence[Line]) -> int | None:
    """What an id on disk appears as; None where the map has none for it."""
    return next((line.shown + number - line.disk for line in map_ if 0 <= number - line.disk < line.count), None)


@contextmanager
def user_namespace(owners: Owners) -> Iterator[int]:
    """A descriptor of a user namespace with these maps, in which nothing runs."""
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
    """In the child: nothing that could need a lock of the parent's."""
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
    """A mount of a directory that is nowhere yet; it is gone with the block unless it has been attached."""
    descriptor = libc.open_tree(tree, _CLONE | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def change(mount: int, tree: Path, flags: int, namespace: int | None = None) -> None:
    """Set flags of a detached mount, make it private, and with a namespace map its owners."""
    wanted = _ATTRIBUTES.pack(flags | (0 if namespace is None else _IDMAP), 0, _PRIVATE, namespace or 0)
    libc.mount_setattr(mount, wanted, tree)


def attach(mount: int, point: Path) -> None:
    libc.move_mount(mount, point)


@dataclass(frozen=True)
class Range:
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
