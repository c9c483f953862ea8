"""Processes that outlive the command which started them, known again by id and start time."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
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

    @classmethod
    def start(cls, argv: Sequence[str], log: Path, *, with_parent: bool = False) -> Self:
        """A program that goes on after this command, or, `with_parent`, that ends when this thread ends."""
        tie = ["setpriv", "--pdeathsig", "KILL"] if with_parent else []
        with log.open("wb") as file:
            # Not `run`, which waits for the end.
            process = subprocess.Popen(
                [*tie, *argv], stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        # From here on it is known by its number and start time; this object need not wonder how it ends.
        process.returncode = 0
        return cls.of(process.pid)

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


@dataclass(frozen=True)
class Ledger:
    """The processes of a lab by name, as its directory keeps them."""

    directory: Path

    @property
    def _file(self) -> Path:
        return self.directory / "processes.json"

    def read(self) -> dict[str, Process]:
        """None, where nothing was ever started."""
        with suppress(FileNotFoundError):
            return {name: Process(**fields) for name, fields in json.loads(self._file.read_text()).items()}
        return {}

    def add(self, name: str, process: Process) -> None:
        """At once, so that a process is known whatever happens next."""
        known = self.read() | {name: process}
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps({name: dataclasses.asdict(one) for name, one in known.items()}))
        part.replace(self._file)


def _start_time(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = text.rpartition(")")[2].split()
    # A zombie has ended, whoever has still to collect it; start time is field 22 of the line.
    return None if state == "Z" else int(fields[18])
