"""The progress that people see: a line for each phase, or on a terminal one live line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TextIO

NAME: Final = "moorage"


class Progress:
    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._began = clock()
        self._phase = ""
        self.lines: list[str] = []

    @property
    def elapsed(self) -> float:
        return self._clock() - self._began

    def phase(self, text: str) -> None:
        """Begin this phase, unless it is the present one."""
        if text == self._phase:
            return
        self._phase = text
        self.lines.append(self._stamped(text))
        self._write(self._stamped(text), lasting=not self._live)

    def tick(self, detail: str = "") -> None:
        """Bring the live line up to date. The detail, how far the phase is, shows there only."""
        if self._live and self._phase:
            self._write(self._stamped(": ".join(filter(None, (self._phase, detail)))), lasting=False)

    def say(self, text: str) -> None:
        """Print a line that stays on the screen."""
        self.lines.append(self._stamped(text))
        self._write(f"{NAME}: {text}", lasting=True)
        self._phase = ""

    def _stamped(self, text: str) -> str:
        return f"{NAME}: {self.elapsed:6.1f} s  {text}"

    def _write(self, line: str, lasting: bool) -> None:
        start = "\r\x1b[K" if self._live else ""
        try:
            self._stream.write(start + line + ("\n" if lasting else ""))
            self._stream.flush()
        except OSError:
            # A full disk, or a reader that is gone, must not end the job.
            return


def duration(seconds: float) -> str:
    """4.2 s, 3:05, 12:00:07."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(count: int) -> str:
    """395 MiB."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
