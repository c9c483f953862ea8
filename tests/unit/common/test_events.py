"""Waiting for what happens first."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from moorage.common import events
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.events import Signals, Watch


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def kill(number: int) -> None:
    # Not to the process: another thread, such as one of pytest-xdist, does not block what this one blocks.
    signal.pthread_kill(threading.get_ident(), number)


class TestWatch:
    def test_what_can_be_read_is_dealt_with(self, pipe: tuple[int, int]) -> None:
        heard: list[bytes] = []
        with Watch() as waiting:
            waiting.on(pipe[0], lambda: heard.append(os.read(pipe[0], 10)))
            assert not waiting.once(0)
            os.write(pipe[1], b"x")
            assert waiting.once(5)
        assert heard == [b"x"]

    def test_what_is_off_is_not_heard_even_in_the_same_turn(self) -> None:
        pipes = [os.pipe() for _ in range(2)]
        heard: list[int] = []
        with Watch() as waiting:

            def hear(index: int) -> None:
                heard.append(index)
                waiting.off(pipes[1 - index][0])

            for index, (reading, writing) in enumerate(pipes):
                os.write(writing, b"x")
                waiting.on(reading, lambda index=index: hear(index))  # type: ignore[misc]
            waiting.once(5)
        assert len(heard) == 1
        for end in (end for pair in pipes for end in pair):
            os.close(end)

    def test_off_twice(self, pipe: tuple[int, int]) -> None:
        with Watch() as waiting:
            waiting.on(pipe[0], lambda: None)
            waiting.off(pipe[0])
            waiting.off(pipe[0])

    def test_until_its_condition_holds(self, pipe: tuple[int, int]) -> None:
        heard: list[bytes] = []
        with Watch() as waiting:
            waiting.on(pipe[0], lambda: heard.append(os.read(pipe[0], 1)))
            os.write(pipe[1], b"abc")
            assert waiting.until(lambda: len(heard) == 2, Deadline(5))
        assert heard == [b"a", b"b"]

    def test_until_its_deadline(self) -> None:
        started = time.monotonic()
        with Watch() as waiting:
            assert not waiting.until(lambda: False, Deadline(0.2))
        assert 0.2 <= time.monotonic() - started < 5

    def test_a_condition_that_holds_needs_nothing_to_happen(self) -> None:
        with Watch() as waiting:
            assert waiting.until(lambda: True, Deadline(0))

    def test_often_is_called_in_between(self) -> None:
        ticks: list[int] = []
        started = time.monotonic()
        with Watch() as waiting:
            waiting.until(lambda: len(ticks) > 3, Deadline(10), lambda: ticks.append(1), 0.1)
        assert len(ticks) == 4
        assert time.monotonic() - started < 3

    def test_a_pause_handles_events_to_its_end(self, pipe: tuple[int, int]) -> None:
        heard: list[bytes] = []
        started = time.monotonic()
        with Watch() as waiting:
            waiting.on(pipe[0], lambda: heard.append(os.read(pipe[0], 1)))
            os.write(pipe[1], b"ab")
            waiting.pause(0.2)
        assert heard == [b"a", b"b"]
        assert 0.2 <= time.monotonic() - started < 5

    def test_a_guard_ends_every_wait_within_its_block(self, pipe: tuple[int, int]) -> None:
        heard: list[bytes] = []

        def check() -> None:
            if heard:
                raise MoorageError("no use")

        with Watch() as waiting:
            waiting.on(pipe[0], lambda: heard.append(os.read(pipe[0], 1)))
            os.write(pipe[1], b"x")
            with pytest.raises(MoorageError, match="no use"), waiting.guarded(check):
                waiting.until(lambda: False, Deadline(5))
            assert not waiting.until(lambda: False, Deadline(0))

    def test_what_is_noticed_wakes_a_wait(self, pipe: tuple[int, int]) -> None:
        started = time.monotonic()
        with Watch() as waiting:
            with waiting.noticing(pipe[0]):
                os.write(pipe[1], b"x")
                assert waiting.until(lambda: time.monotonic() > started + 0.01, Deadline(60))
            assert not waiting.once(0)
        assert time.monotonic() - started < 5


class TestSignals:
    def test_they_can_be_waited_for(self) -> None:
        with Signals([signal.SIGUSR1, signal.SIGUSR2]) as signals, Watch() as waiting:
            taken: list[int] = []
            waiting.on(signals.descriptor, lambda: taken.extend(signals.take()))
            kill(signal.SIGUSR2)
            kill(signal.SIGUSR1)
            assert waiting.until(lambda: len(taken) == 2, Deadline(5))
        assert sorted(taken) == [signal.SIGUSR1, signal.SIGUSR2]

    def test_none_is_none(self) -> None:
        with Signals([signal.SIGUSR1]) as signals:
            assert signals.take() == []

    def test_all_is_as_before_afterwards(self) -> None:
        before = signal.getsignal(signal.SIGUSR1), signal.set_wakeup_fd(-1)
        with Signals([signal.SIGUSR1]) as signals:
            assert signal.getsignal(signal.SIGUSR1) != before[0]
            descriptor = signals.descriptor
        assert (signal.getsignal(signal.SIGUSR1), signal.set_wakeup_fd(-1)) == before
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)

    def test_what_came_while_they_were_blocked_is_not_lost(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        kill(signal.SIGUSR1)
        with Signals([signal.SIGUSR1]) as signals:
            assert signals.take() == [signal.SIGUSR1]

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGSEGV, signal.SIGPIPE])
    def test_some_are_nobodys_to_send(self, number: int) -> None:
        assert number not in events.FROM_OUTSIDE

    @pytest.mark.parametrize(
        "name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "CONT", "TSTP", "WINCH", "RTMIN"]
    )
    def test_most_may_come_from_outside(self, name: str) -> None:
        assert signal.Signals[f"SIG{name}"] in events.FROM_OUTSIDE

    def test_what_one_was_told_to_ignore_is_not_heeded(self) -> None:
        heeded = events.heeded()
        before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        try:
            assert heeded - events.heeded() == {signal.SIGUSR1}
        finally:
            signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(("number", "name"), [(10, "USR1"), (15, "TERM"), (40, "signal 40"), (200, "signal 200")])
def test_names(number: int, name: str) -> None:
    assert events.name(number) == name
