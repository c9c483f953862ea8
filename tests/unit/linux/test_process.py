from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.linux import process
from moorage.linux.process import Process, name, real_uid, running

STAT = "{pid} ({name}) {state} 1 2 3 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 18446744073709551615 0 0 0"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(process, "PROC", tmp_path)
    (tmp_path / "7").mkdir()
    return tmp_path / "7"


@pytest.mark.parametrize("called", ["sh", "a b", ") R 1 2 3", "(", "x)) S 9 9", "\xff\n"])
def test_its_name_does_not_change_what_it_is(proc: Path, called: str) -> None:
    (proc / "stat").write_text(STAT.format(pid=7, name=called, state="S", start=4711))
    assert Process.of(7) == Process(7, 4711)


@pytest.mark.parametrize(
    ("state", "alive"), [("R", True), ("S", True), ("D", True), ("T", True), ("Z", False), ("X", False)]
)
def test_what_is_only_waiting_to_be_collected_is_gone(proc: Path, state: str, alive: bool) -> None:
    (proc / "stat").write_text(STAT.format(pid=7, name="sh", state=state, start=4711))
    assert Process(7, 4711).alive is alive


def test_a_later_one_with_the_same_number_is_another(proc: Path) -> None:
    (proc / "stat").write_text(STAT.format(pid=7, name="sh", state="S", start=4711))
    assert not Process(7, 4710).alive
    assert not Process(8, 4711).alive


def test_this_one() -> None:
    here = Process.current()
    assert here.pid == os.getpid()
    with here.held() as descriptor:
        assert running(descriptor)
    assert real_uid(os.getpid()) == os.getuid()


def test_only_the_very_process_is_held() -> None:
    """The number is this one's; the process was another."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ProcessLookupError):
        Process(os.getpid(), 1).opened()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(("called", "shown"), [("sh\n", "sh"), ("a\x1b[2Jb\n", "a\\x1b[2Jb"), ("é", "\\xe9")])
def test_names_are_shown_plainly(proc: Path, called: str, shown: str) -> None:
    (proc / "comm").write_text(called)
    assert name(7) == shown
    assert name(8) == "gone"


@pytest.mark.parametrize(
    "called", ["a\fUid:x", "a\vUid:", "\x1c\x1d\x1eUid: 0", "a\x85Uid: 0 0 0 0", "\u2028Uid: 0", "\rUid: 0"]
)
def test_its_name_does_not_change_whose_it_is(proc: Path, called: str) -> None:
    """Python knows more ends of a line than the kernel."""
    (proc / "status").write_bytes(f"Name:\t{called}\nUmask:\t0022\nUid:\t1001\t0\t0\t0\n".encode())
    assert real_uid(7) == 1001
