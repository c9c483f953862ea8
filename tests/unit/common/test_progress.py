"""What a job's output shows: lasting lines in a file, one live line on a terminal."""

from __future__ import annotations

import io

import pytest

from moorage.common.progress import Progress, duration, size


class Screen(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(terminal: bool) -> str:
    screen, clock = Screen(terminal), Clock()
    progress = Progress(screen, clock)
    progress.phase("starting")
    clock.now += 1.5
    progress.tick()
    progress.phase("preparing")
    progress.phase("preparing")
    progress.say("done")
    progress.tick()
    return screen.getvalue()


def test_in_a_file_each_phase_is_one_line() -> None:
    assert shown(terminal=False).splitlines() == [
        "moorage:    0.0 s  starting",
        "moorage:    1.5 s  preparing",
        "moorage: done",
    ]


def test_on_a_terminal_the_line_is_written_again() -> None:
    assert shown(terminal=True).split("\r\x1b[K") == [
        "",
        "moorage:    0.0 s  starting",
        "moorage:    1.5 s  starting",
        "moorage:    1.5 s  preparing",
        "moorage: done\n",
    ]


def test_how_far_a_phase_is_shows_on_a_terminal_only() -> None:
    for terminal, seen in ((True, True), (False, False)):
        screen = Screen(terminal)
        progress = Progress(screen, Clock())
        progress.phase("loading")
        progress.tick("3 of 8")
        assert screen.getvalue().endswith("loading: 3 of 8") is seen
        assert progress.lines == ["moorage:    0.0 s  loading"]


def test_all_is_remembered_with_its_time() -> None:
    progress = Progress(Screen(False), Clock())
    progress.phase("a")
    progress.say("b")
    assert progress.lines == ["moorage:    0.0 s  a", "moorage:    0.0 s  b"]


def test_a_full_disk_does_not_end_the_job() -> None:
    class Full(Screen):
        def write(self, text: str, /) -> int:
            raise OSError(28, "No space left on device")

    Progress(Full(False)).phase("a")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (4.25, "4.2 s"), (59.94, "59.9 s"), (60, "1:00"), (185, "3:05"), (43207, "12:00:07")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (414187520, "395 MiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3072.0 GiB")],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text
