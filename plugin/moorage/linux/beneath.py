"""Directories opened so that neither a link nor a mount can lead elsewhere."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from moorage.linux import mounts

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# How often something is detached from one name before it is given up.
MOST_MOUNTS: Final = 64

_OPENAT2: Final = 437
_SAME_MOUNT: Final = 1
_NO_LINKS: Final = 4
_BENEATH: Final = 8
# A pipe without a writer would keep whoever opens it waiting.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_libc: Final = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


class _How(ctypes.Structure):
    """struct open_how."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@contextmanager
def opened(place: Path) -> Iterator[int]:
    """A directory of root's, by its path."""
    descriptor = os.open(place, DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def entered(parent: int, name: str) -> Iterator[int]:
    """The directory of this name in `parent` itself; what is mounted over it is detached, and never looked at.

    To open a mount could mean to wait for ever: its owner may serve it himself.
    """
    descriptor = unmounting(parent, name, lambda: _open(parent, name))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def unmounting(parent: int, name: str, act: Callable[[], T]) -> T:
    """What `act` returns once nothing is mounted over this name in a directory that only root can write."""
    for _ in range(MOST_MOUNTS):
        try:
            return act()
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EXDEV):
                raise
            mounts.unmount(Path(f"/proc/self/fd/{parent}") / name, lazy=True)
    return act()


def regular(parent: int, path: str) -> int:
    """A descriptor of the regular file at this path in a tree that somebody else has filled."""
    descriptor = _open(parent, path, _FILE, _SAME_MOUNT | _NO_LINKS | _BENEATH)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", path)
    return descriptor


def _open(parent: int, name: str, flags: int = DIRECTORY, resolve: int = _SAME_MOUNT | _NO_LINKS) -> int:
    how = _How(flags, 0, resolve)
    words = (ctypes.c_long(_OPENAT2), ctypes.c_int(parent), os.fsencode(name), ctypes.byref(how))
    descriptor = int(_libc.syscall(*words, ctypes.c_size_t(ctypes.sizeof(how))))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return descriptor
