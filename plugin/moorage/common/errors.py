"""What goes wrong, in the words a user reads, and the exit code it ends in."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130
# Lines also come from users: nothing else in brackets is a code, and a code is short.
_CODE: Final = re.compile(r" \[(M-[A-Z]{2,12}-[0-9]{1,3})\]\Z")


class MoorageError(Exception):
    """An error whose text is one line, fit to be shown as it is; `code` is its entry in codes.toml."""

    def __init__(self, *words: object, code: str = "") -> None:
        super().__init__(*words)
        self.code = code

    def __str__(self) -> str:
        return " ".join(super().__str__().split())

    @property
    def line(self) -> str:
        """The text as people read it: with its code."""
        return coded(str(self), self.code)


class UserError(MoorageError):
    """What happened, and what to do about it."""

    def __init__(self, what: str, remedy: str, *, code: str = "") -> None:
        super().__init__(f"{what}: {remedy}", code=code)
        self.what = what
        self.remedy = remedy


class UsageError(UserError):
    """The request itself was wrong; nothing was begun."""


class Taken(UserError):
    """Other jobs on this node have what this one would get, as its room or its time; no fault of the node's."""


def coded(text: str, code: str) -> str:
    return f"{text} [{code}]" if code else text


def code_of(line: str) -> str:
    """The code at the end of a line; empty if there is none."""
    found = _CODE.search(line.rstrip())
    return found[1] if found else ""


def shortened(line: str, most: int) -> str:
    """At most so many characters of the line; its code stays."""
    end = f" [{code}]" if (code := code_of(line)) else ""
    return line if len(line) <= most else line[: most - len(end)] + end


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
    """One line for any exception, for callers that must not fail."""
    if isinstance(error, MoorageError):
        return error.line
    return str(error) if isinstance(error, OSError) else repr(error)


@contextmanager
def reported(program: str) -> Iterator[None]:
    """End the program with one line and an exit code; what nobody foresaw keeps its traceback."""
    try:
        yield
    except (MoorageError, KeyboardInterrupt) as error:
        line = error.line if isinstance(error, MoorageError) else str(error)
        print(f"{program}: {line or 'interrupted'}", file=sys.stderr)
        sys.exit(exit_code(error))
