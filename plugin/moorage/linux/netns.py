"""A network namespace that a user has handed over by a descriptor of it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from moorage.common.errors import MoorageError

_NETWORK: Final = re.compile(r"net:\[[0-9]+\]")
_OWNING_NAMESPACE: Final = 0xB701
_OWNER: Final = 0xB704


class NotTheirs(MoorageError):
    """What was handed over is no network namespace of that user's."""


def verify(descriptor: int, uid: int) -> None:
    """NotTheirs unless it is of a network namespace that was made in a user namespace of this user's.

    Nothing is asked of the descriptor before its name is known: it might be a file of a server that never answers. The
    names of files begin with a slash, and those of the kernel's other objects are not these.
    """
    name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    if not _NETWORK.fullmatch(name):
        raise NotTheirs("this is no network namespace")
    if Path("/proc/thread-self/ns/net").samefile(f"/proc/self/fd/{descriptor}") or _owner(descriptor) != uid:
        raise NotTheirs(f"the network namespace is not one of user {uid}'s own")


def _owner(descriptor: int) -> int:
    try:
        namespace = fcntl.ioctl(descriptor, _OWNING_NAMESPACE)
    except OSError as error:
        # It belongs to nobody below us, or the descriptor was opened so that nothing can be asked of it.
        raise NotTheirs(f"the network namespace does not say whose it is: {error.strerror}") from error
    try:
        answer = fcntl.ioctl(namespace, _OWNER, bytes(4))
    finally:
        os.close(namespace)
    return int.from_bytes(answer, sys.byteorder)


_NEW_NETWORK: Final = 0x40000000

_OURS: Final = Path("/proc/thread-self/ns/net")

_libc: Final = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(namespace: int) -> Iterator[None]:
    """This thread, and what it starts, is in there for a while."""
    ours = os.open(_OURS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_libc.setns(namespace, _NEW_NETWORK))
        yield
    finally:
        _checked(_libc.setns(ours, _NEW_NETWORK))
        os.close(ours)


def path(namespace: int) -> str:
    """By which another program finds it."""
    return f"/proc/{os.getpid()}/fd/{namespace}"


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
