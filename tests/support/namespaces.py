"""Namespaces of the kernel, entered by the thread that runs the test."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from moorage.common.command import run

NETWORK: Final = 0x40000000
MOUNT: Final = 0x00020000
FILES: Final = {NETWORK: "net", MOUNT: "mnt"}

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    _checked(_libc.unshare(kinds))


def enter(namespace: int, kind: int) -> None:
    _checked(_libc.setns(namespace, kind))


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def opened(kind: int) -> int:
    """A descriptor of the namespace this thread is in."""
    return os.open(f"/proc/thread-self/ns/{FILES[kind]}", os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def fresh(*kinds: int) -> Iterator[None]:
    """New namespaces for this thread and what it starts; back in the old ones afterwards, which ends the new."""
    with ExitStack() as undo:
        # Entering a mount namespace also changes the working directory: to its root.
        undo.callback(os.chdir, Path.cwd())
        for kind in kinds:
            old = opened(kind)
            undo.callback(os.close, old)
            undo.callback(enter, old, kind)
        unshare(sum(kinds))
        if MOUNT in kinds:
            run(["mount", "--make-rprivate", "/"])
        yield


@contextmanager
def network() -> Iterator[int]:
    """A new network namespace, kept by its descriptor alone."""
    with fresh(NETWORK):
        namespace = opened(NETWORK)
    try:
        yield namespace
    finally:
        os.close(namespace)


@contextmanager
def inside(namespace: int) -> Iterator[None]:
    """In the given network namespace for a while."""
    old = opened(NETWORK)
    try:
        enter(namespace, NETWORK)
        yield
    finally:
        enter(old, NETWORK)
        os.close(old)
