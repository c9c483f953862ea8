"""Opens directories and files so that neither a link nor a mount can lead elsewhere."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from moorage.linux import libc, mounts

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# At most so many mounts are detached from one name.
MOST_MOUNTS: Final = 64

_SAME_MOUNT: Final = 1
_NO_LINKS: Final = 4
_BENEATH: Final = 8
# Without O_NONBLOCK, opening a pipe without a writer would wait for one.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# struct open_how: flags, mode, resolve.
_HOW: Final = struct.Struct("=3Q")
T = TypeVar("T")


@contextmanager
def opened(place: Path) -> Iterator[int]:
    """The descriptor of a directory of root's, by its path."""
    descriptor = os.open(place, DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def entered(parent: int, name: str) -> Iterator[int]:
    """The descriptor of a directory in `parent`. Mounts over it are detached, and never opened.

    Opening a mount can take for ever: a user may be its server.
    """
    descriptor = unmounting(parent, name, lambda: _open(parent, name))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def unmounting(parent: int, name: str, act: Callable[[], T]) -> T:
    """Detach all mounts over this name, in a directory that only root can write, until `act` succeeds; its result."""
    for _ in range(MOST_MOUNTS):
        try:
            return act()
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EXDEV):
                raise
            mounts.unmount(Path(f"/proc/self/fd/{parent}") / name, lazy=True)
    return act()


def regular(parent: int, path: str) -> int:
    """A descriptor of the regular file at this path, in a tree whose content is not trusted."""
    descriptor = _open(parent, path, _FILE, _SAME_MOUNT | _NO_LINKS | _BENEATH)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", path)
    return descriptor


def _open(parent: int, name: str, flags: int = DIRECTORY, resolve: int = _SAME_MOUNT | _NO_LINKS) -> int:
    return libc.openat2(parent, name, _HOW.pack(flags, 0, resolve))
