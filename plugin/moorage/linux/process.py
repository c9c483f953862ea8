"""Processes that cannot be confused with later ones of the same number."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

PROC: Final = Path("/proc")
_ENDED: Final = frozenset("ZX")


@dataclass(frozen=True)
class Process:
    """A process: its number, and its start in the kernel's ticks since boot."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this number now. A zombie does not count."""
        state, start = _state_and_start(pid)
        if state in _ENDED:
            raise ProcessLookupError(f"process {pid} has ended")
        return cls(pid, start)

    @classmethod
    def current(cls) -> Self:
        return cls.of(os.getpid())

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    @property
    def began(self) -> float:
        """The start in seconds since boot."""
        return self.start / os.sysconf("SC_CLK_TCK")

    @property
    def alive(self) -> bool:
        try:
            return Process.of(self.pid) == self
        except ProcessLookupError:
            return False

    def opened(self) -> int:
        """A descriptor of this process, which becomes readable when the process ends."""
        descriptor = os.pidfd_open(self.pid)
        # This look comes after the descriptor is open, so both mean the same process.
        if self.alive:
            return descriptor
        os.close(descriptor)
        raise ProcessLookupError(f"process {self.pid} has ended")

    @contextmanager
    def held(self) -> Iterator[int]:
        """A descriptor. If it is `running` at the end of the block, all that was read by number is of this process."""
        descriptor = self.opened()
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def running(descriptor: int) -> bool:
    return not select.select([descriptor], [], [], 0)[0]


def real_uid(pid: int) -> int:
    """The real user id of the process."""
    # Users choose names of processes. Python knows many ends of a line, and the kernel escapes only this one in a name.
    for line in read(pid, "status").split("\n"):
        if line.startswith("Uid:"):
            return int(line.split()[1])
    raise ProcessLookupError(f"process {pid} has no user")


def name(pid: int) -> str:
    """The name of the process for messages; its owner chooses it."""
    try:
        return ascii(read(pid, "comm").strip())[1:-1]
    except ProcessLookupError:
        return "gone"


def _state_and_start(pid: int) -> tuple[str, int]:
    # The name is in brackets, and may hold any byte, also brackets.
    fields = read(pid, "stat").rpartition(")")[2].split()
    return fields[0], int(fields[19])


def read(pid: int, file: str) -> str:
    """The content of a file of the kernel about the process that has this number now."""
    try:
        # In a text file Python would read a carriage return as the end of a line.
        return (PROC / str(pid) / file).read_bytes().decode(errors="replace")
    except FileNotFoundError as error:
        raise ProcessLookupError(f"there is no process {pid}") from error
