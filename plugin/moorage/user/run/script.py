"""A job's own script: the child for which everything else is there."""

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

# Slurm signals the steps of a job one after the other.
PATIENCE: Final = 3.0
# It sends these before others of its own accord, or to stop and go on.
OF_NO_INTEREST: Final = frozenset({"CONT", "TSTP"})


class Script:
    """It runs with its own arguments and the standard streams of the job.

    Its process group is its own, so that a `kill 0` in it is its own affair, unless there is a terminal, which would
    stop it for reading there.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self.on_terminal = sys.stdin is not None and sys.stdin.isatty()
        group = None if self.on_terminal else 0
        try:
            self.process = subprocess.Popen(argv, env=environ, process_group=group)
        except OSError as error:
            what = f"{argv[0]} cannot be started ({error.strerror})"
            raise UserError(what, "look at its first line, and at its mode") from None
        self.handle = os.pidfd_open(self.process.pid)

    @property
    def code(self) -> int | None:
        """How it ended, if it has: an exit code, or -N for signal N."""
        return self.process.poll()

    def signal(self, number: int) -> None:
        """Hand on what Slurm has sent to us in its place; a terminal has sent it the same already."""
        if not (self.on_terminal and number in OF_TERMINAL):
            with suppress(OSError):
                signal.pidfd_send_signal(self.handle, number)


def end_as(code: int) -> NoReturn:
    """End as the script did: by the same signal, too, so that Slurm records for the job what it would without us."""
    if code < 0:
        # One core dump is enough, and it is the script's.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)


class Strays:
    def __init__(self, patience: float | None = None) -> None:
        self._patience = PATIENCE if patience is None else patience
        self._waiting: dict[str, Deadline] = {}
        self._settled = set(OF_NO_INTEREST)

    def told(self, name: str) -> None:
        """The agents have got it."""
        if name not in self._settled:
            self._waiting.setdefault(name, Deadline(self._patience))

    def received(self, name: str) -> None:
        """So has the job's task."""
        self._settled.add(name)
        self._waiting.pop(name, None)

    @property
    def patience(self) -> float | None:
        """When to look again; None unless something is waited for."""
        return min((deadline.left for deadline in self._waiting.values()), default=None)

    def certain(self) -> list[str]:
        """Those of which it is certain by now; each once."""
        found = [name for name, deadline in self._waiting.items() if deadline.passed]
        for name in found:
            self.received(name)
        return found
