"""A process that cannot be mistaken for a later one with its number."""

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
    """Its number, and when it began, in the kernel's ticks since boot."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this number now; one that nobody has collected yet is gone."""
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
        """In seconds since boot."""
        return self.start / os.sysconf("SC_CLK_TCK")

    @property
    def alive(self) -> bool:
        try:
            return Process.of(self.pid) == self
        except ProcessLookupError:
            return False

    def opened(self) -> int:
        """A descriptor of this very process, readable once it has ended."""
        descriptor = os.pidfd_open(self.pid)
        # Looked at only after it is held: what is seen now is what is held.
        if self.alive:
            return descriptor
        os.close(descriptor)
        raise ProcessLookupError(f"process {self.pid} has ended")

    @contextmanager
    def held(self) -> Iterator[int]:
        """Whatever is read of the number meanwhile is this process's, if it is `running` at the end."""
        descriptor = self.opened()
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def running(descriptor: int) -> bool:
    return not select.select([descriptor], [], [], 0)[0]


def real_uid(pid: int) -> int:
    """Whose process it is, whatever it pretends to be."""
    # Users name processes; of all that Python takes for the end of a line the kernel escapes this one alone.
    for line in read(pid, "status").split("\n"):
        if line.startswith("Uid:"):
            return int(line.split()[1])
    raise ProcessLookupError(f"process {pid} has no user")


def name(pid: int) -> str:
    """What it is called, for people: its owner chooses this."""
    try:
        return ascii(read(pid, "comm").strip())[1:-1]
    except ProcessLookupError:
        return "gone"


def _state_and_start(pid: int) -> tuple[str, int]:
    # The name stands in brackets and may hold any byte, more brackets among them.
    fields = read(pid, "stat").rpartition(")")[2].split()
    return fields[0], int(fields[19])


def read(pid: int, file: str) -> str:
    """One of the kernel's files about the process that has this number now."""
    try:
        # Not as a text file, in which a carriage return would be read as the end of a line.
        return (PROC / str(pid) / file).read_bytes().decode(errors="replace")
    except FileNotFoundError as error:
        raise ProcessLookupError(f"there is no process {pid}") from error
