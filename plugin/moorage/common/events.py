"""Waiting for whatever happens first: a readable descriptor, a signal, the end of a limit."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Self

from moorage.common.deadline import Deadline

Happening = Callable[[], object]
# They cannot be caught, or tell a process of what it did itself.
_OWN: Final = "KILL STOP CHLD SEGV BUS FPE ILL ABRT TRAP SYS PIPE XCPU XFSZ TTIN TTOU"
FROM_OUTSIDE: Final = frozenset(signal.valid_signals()) - {signal.Signals[f"SIG{name}"] for name in _OWN.split()}
# A terminal sends them to every process in its foreground.
OF_TERMINAL: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP})


class Watch:
    """Calls what is registered for a descriptor whenever that can be read."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def on(self, descriptor: int, happening: Happening) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, happening)

    def off(self, descriptor: int) -> None:
        with suppress(KeyError):
            self._selector.unregister(descriptor)

    def once(self, seconds: float | None = None) -> bool:
        """Deal with what happens next; False if nothing does for so many seconds."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            # An earlier one may have taken a later one off.
            if self._selector.get_map().get(key.fd) == key:
                key.data()
        return bool(ready)

    def until(self, condition: Callable[[], bool], deadline: Deadline, often: Happening | None = None) -> bool:
        """Deal with what happens until the condition holds; False if it does not before the deadline.

        `often` is called every second, and whenever something has happened.
        """
        while not condition():
            if deadline.passed:
                return False
            self.once(min(deadline.left, 1.0) if often else deadline.left)
            if often:
                often()
        return True


class Signals:
    """Signals as something to wait for: while the block lasts, none of them does anything else."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = frozenset(numbers)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self.descriptor, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in self._numbers:
            self._before[number] = signal.signal(number, _noted)
        # Whoever could not be disturbed before this has blocked them.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.descriptor)
        os.close(self._writing)

    def take(self) -> list[int]:
        """Those that came since the last call."""
        with suppress(BlockingIOError):
            return [number for number in os.read(self.descriptor, 1 << 16) if number in self._numbers]
        return []


def heeded() -> frozenset[int]:
    """The signals from outside that this process was not told to ignore by who started it."""
    return frozenset(number for number in FROM_OUTSIDE if signal.getsignal(number) != signal.SIG_IGN)


def name(number: int) -> str:
    """USR1 for 10."""
    with suppress(ValueError):
        return signal.Signals(number).name.removeprefix("SIG")
    return f"signal {number}"


def _noted(number: int, frame: FrameType | None) -> None:
    """Its number is in the pipe already; a handler, unlike SIG_IGN, is not handed on to programs that are started."""
