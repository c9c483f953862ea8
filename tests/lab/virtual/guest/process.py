"""A process that outlives the command which started it, known again by its id and its start time."""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Process:
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self:
        return cls(pid, _start_time(pid) or 0)

    def alive(self) -> bool:
        return self.started != 0 and _start_time(self.pid) == self.started

    def kill(self, limit: float = 30.0) -> None:
        """End it and wait until it is gone."""
        if not self.alive():
            return
        handle = os.pidfd_open(self.pid)
        try:
            if self.alive():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                if not select.select([handle], [], [], limit)[0]:
                    raise TimeoutError(f"process {self.pid} did not end within {limit:.0f} s of SIGKILL")
        finally:
            os.close(handle)


def _start_time(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = text.rpartition(")")[2].split()
    # A zombie has ended, whoever has still to collect it; start time is field 22 of the line.
    return None if state == "Z" else int(fields[18])
