"""The job's own script, and the signals that Slurm sends instead of it to the agents."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from moorage.common.deadline import Deadline
from moorage.common.errors import UserError
from moorage.common.events import OF_TERMINAL

# Slurm signals the steps of a job one after the other, the job's task within this time.
STRAY_TIMEOUT: Final = 3.0
# Slurm itself sends these before other signals, or to stop and continue a job.
OF_NO_INTEREST: Final = frozenset({"CONT", "TSTP"})


class Script:
    """The script runs with its own arguments and the standard streams of the job.

    It has its own process group, so that a `kill 0` in it ends nothing else. On a terminal it has not, because the
    terminal would stop a script of another group when that reads.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self.on_terminal = sys.stdin is not None and sys.stdin.isatty()
        group = None if self.on_terminal else 0
        try:
            self.process = subprocess.Popen(argv, env=environ, process_group=group)
        except OSError as error:
            what = f"{argv[0]} cannot be started ({error.strerror})"
            raise UserError(what, "look at its first line, and at its mode", code="M-JOB-26") from None
        self.handle = os.pidfd_open(self.process.pid)

    @property
    def code(self) -> int | None:
        """The exit code, or -N for signal N; None while the script runs."""
        return self.process.poll()

    def signal(self, number: int) -> None:
        """Pass on a signal that Slurm has sent to this process; a terminal has sent it to the script already."""
        if not (self.on_terminal and number in OF_TERMINAL):
            with suppress(OSError):
                signal.pidfd_send_signal(self.handle, number)


def end_as(code: int) -> NoReturn:
    """End as the script did, also by the same signal, so that Slurm records the same for the job as without us."""
    if code < 0:
        # The script has dumped its core; a second core dump is of no use.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)


class Strays:
    """Signals that have reached the agents and not the job's task, and so not the script."""

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = STRAY_TIMEOUT if timeout is None else timeout
        self._waiting: dict[str, Deadline] = {}
        self._settled = set(OF_NO_INTEREST)

    def told(self, name: str) -> None:
        """The agents have got this signal."""
        if name not in self._settled:
            self._waiting.setdefault(name, Deadline(self._timeout))

    def received(self, name: str) -> None:
        """The job's task has got it."""
        self._settled.add(name)
        self._waiting.pop(name, None)

    @property
    def timeout(self) -> float | None:
        """The seconds until another signal is certain; None if no signal is waited for."""
        return min((deadline.left for deadline in self._waiting.values()), default=None)

    def certain(self) -> list[str]:
        """The signals that are certain by now not to reach the job's task; each once."""
        found = [name for name, deadline in self._waiting.items() if deadline.passed]
        for name in found:
            self.received(name)
        return found
