"""Locks of files by flock(2). A lock belongs to the open file: it ends with the last descriptor of that."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from moorage.common.deadline import Deadline

EXCLUSIVE: Final = fcntl.LOCK_EX
SHARED: Final = fcntl.LOCK_SH
# flock(2) has no timeout, and a signal that ends it would reach the whole process.
RETRY: Final = 0.1


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """The file of a lock, made if it is missing; its lock ends with the block."""
    descriptor = open_file(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int, how: int = EXCLUSIVE) -> bool:
    """Whether the open file has the lock now."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(descriptor: int, how: int, deadline: Deadline, retry: float = RETRY) -> bool:
    """Wait for the lock until the deadline; whether the open file has it now."""
    while not try_lock(descriptor, how):
        if deadline.passed:
            return False
        time.sleep(min(retry, deadline.left))
    return True


def unlock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)
