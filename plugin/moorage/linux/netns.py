"""Network namespaces: made, entered, and verified when a user hands one over by a descriptor."""

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
    """The descriptor is not that of a network namespace of this user."""


def verify(descriptor: int, uid: int) -> None:
    """NotTheirs unless the descriptor is of a network namespace that belongs to a user namespace of this user.

    Before its name is known, nothing else is done with it: it may be a file of a server that never answers. Names of
    files begin with a slash, and other objects of the kernel have other names.
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
        # Its user namespace is not below ours, or the descriptor was opened with O_PATH.
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
