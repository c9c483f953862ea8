"""A network namespace that a user has handed over by a descriptor of it."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from moorage.common.errors import MoorageError
from moorage.linux import libc

_NETWORK: Final = re.compile(r"net:\[[0-9]+\]")
_OWNING_NAMESPACE: Final = 0xB701
_OWNER: Final = 0xB704
_OURS: Final = Path("/proc/thread-self/ns/net")


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
    if _OURS.samefile(f"/proc/self/fd/{descriptor}") or _owner(descriptor) != uid:
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


def create() -> int:
    """A descriptor of a new network namespace, which exists as long as somebody uses it."""
    with _returning():
        libc.unshare(libc.NEW_NETWORK)
        return _current()


def enter(namespace: int) -> None:
    """Move this thread to the network namespace, and with it all that it starts from now on."""
    libc.setns(namespace, libc.NEW_NETWORK)


@contextmanager
def inside(namespace: int) -> Iterator[None]:
    """Move this thread to the network namespace for the block."""
    with _returning():
        enter(namespace)
        yield


def path(namespace: int) -> str:
    """The path by which another program finds the namespace."""
    return f"/proc/{os.getpid()}/fd/{namespace}"


@contextmanager
def _returning() -> Iterator[None]:
    """Move this thread back to its present network namespace at the end of the block."""
    ours = _current()
    try:
        yield
    finally:
        enter(ours)
        os.close(ours)


def _current() -> int:
    return os.open(_OURS, os.O_RDONLY | os.O_CLOEXEC)
