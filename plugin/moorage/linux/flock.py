"""Locks of the store and of its copies: who changes one is alone with it, who reads it need not be."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ALONE: Final = fcntl.LOCK_EX
BESIDE_OTHERS: Final = fcntl.LOCK_SH
# flock(2) knows no time limit, and a signal to end it would be the whole process's.
ASK_AGAIN: Final = 0.1


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """The file of a lock, which is given back with the end of the block."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def taken(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def give_back(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)
