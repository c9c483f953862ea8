"""The event loop: waiting for readable descriptors, signals and deadlines at the same time."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, Self

from moorage.common.deadline import Deadline

Handler = Callable[[], object]
# The first two cannot be caught; the others tell a process of something that it did itself.
_OWN: Final = "KILL STOP CHLD SEGV BUS FPE ILL ABRT TRAP SYS PIPE XCPU XFSZ TTIN TTOU"
FROM_OUTSIDE: Final = frozenset(signal.valid_signals()) - {signal.Signals[f"SIG{name}"] for name in _OWN.split()}
# A terminal sends them to every process in its foreground.
OF_TERMINAL: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP})


class Watch:
    """Calls the handler of a descriptor whenever the descriptor can be read.

    Handlers only take note of what has happened, and do not wait. Whoever has to wait for something calls `until`.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._check: Handler = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def on(self, descriptor: int, handler: Handler) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, handler)

    @contextmanager
    def noticing(self, descriptor: int) -> Iterator[None]:
        """Within the block, `until` looks at its condition again when the descriptor can be read."""
        self.on(descriptor, lambda: None)
        try:
            yield
        finally:
            self.off(descriptor)

    def off(self, descriptor: int) -> None:
        with suppress(KeyError):
            self._selector.unregister(descriptor)

    def once(self, seconds: float | None = None) -> bool:
        """Handle the next events; False if there are none for so many seconds."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            # The handler of an earlier event may have removed a later one.
            if self._selector.get_map().get(key.fd) == key:
                key.data()
        return bool(ready)

    def until(
        self, condition: Callable[[], bool], deadline: Deadline, often: Handler | None = None, every: float = 1.0
    ) -> bool:
        """Handle events until the condition holds; False if it does not hold before the deadline.

        `often` is called after every event, and at least every so many seconds.
        """
        while True:
            self._check()
            if condition():
                return True
            if deadline.passed:
                return False
            self.once(min(deadline.left, every) if often else deadline.left)
            if often:
                often()

    def pause(self, seconds: float) -> None:
        """Handle events for so many seconds."""
        self.until(lambda: False, Deadline(seconds))

    @contextmanager
    def guarded(self, check: Handler) -> Iterator[None]:
        """Within the block, `until` calls `check` again and again, which raises if waiting makes no sense any more."""
        before, self._check = self._check, check
        try:
            yield
        finally:
            self._check = before


class Signals:
    """Makes signals into events: while the block lasts, none of them has another effect."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = frozenset(numbers)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self.descriptor, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in self._numbers:
            self._before[number] = signal.signal(number, _noted)
        # A process that was not ready for signals before this has blocked them.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.descriptor)
        os.close(self._writing)

    def take(self) -> list[int]:
        """The signals that have come since the last call."""
        with suppress(BlockingIOError):
            return [number for number in os.read(self.descriptor, 1 << 16) if number in self._numbers]
        return []


def heeded() -> frozenset[int]:
    """The signals from outside, without those that the parent process has set to be ignored."""
    return frozenset(number for number in FROM_OUTSIDE if signal.getsignal(number) != signal.SIG_IGN)


def name(number: int) -> str:
    """USR1 for 10."""
    with suppress(ValueError):
        return signal.Signals(number).name.removeprefix("SIG")
    return f"signal {number}"


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: the number is in the pipe. Unlike SIG_IGN, a handler is not inherited by a program."""
