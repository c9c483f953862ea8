"""What goes wrong, in the words a user reads, and the exit code it ends in."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130


class MoorageError(Exception):
    """An error whose text is one line, fit to be shown as it is."""

    def __str__(self) -> str:
        return " ".join(super().__str__().split())


class UserError(MoorageError):
    """What happened, and what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.what = what
        self.remedy = remedy


class UsageError(UserError):
    """The request itself was wrong; nothing was begun."""


class Taken(UserError):
    """Other jobs on this node have what this one would get, as its room or its time; no fault of the node's."""


def no_room(error: Exception) -> bool:
    """Whether a file system is full, to which any user may have brought it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def exit_code(error: BaseException) -> int:
    match error:
        case UsageError():
            return MISUSED
        case KeyboardInterrupt():
            return INTERRUPTED
        case _:
            return FAILED


def told(error: Exception) -> str:
    """For whom nothing that goes wrong may be the end: also what nobody foresaw."""
    return str(error) if isinstance(error, (MoorageError, OSError)) else repr(error)


@contextmanager
def reported(program: str) -> Iterator[None]:
    """End the program with one line and an exit code; what nobody foresaw keeps its traceback."""
    try:
        yield
    except (MoorageError, KeyboardInterrupt) as error:
        print(f"{program}: {str(error) or 'interrupted'}", file=sys.stderr)
        sys.exit(exit_code(error))
