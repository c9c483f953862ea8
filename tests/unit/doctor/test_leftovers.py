"""What the doctor says of the processes of a job that has not been cleaned up."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.common.deadline import Deadline
from moorage.doctor.leftovers import processes

# No process has so large a number.
GONE = 1 << 22


def tree(place: Path, *pids: int) -> Path:
    (place / "init").mkdir()
    (place / "cgroup.procs").touch()
    (place / "init" / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return place


def test_they_are_named(tmp_path: Path) -> None:
    name = Path("/proc/self/comm").read_text().strip()
    said = list(processes(tree(tmp_path, GONE, os.getpid())))
    assert said == [f"process {os.getpid()} ({name}) is running"]


@pytest.mark.commands("sh")
def test_a_name_that_a_user_made_up_is_short_and_plain(tmp_path: Path) -> None:
    """With 15 letters of its own, psutil would show the first argument: of any length, and with any bytes."""
    script = b"exec 1>&-; printf abcdefghijklmno >/proc/$$/comm; read line"
    program = [b"abcdefghijklmno\x1b[2J\xff" + b"a" * 3000, b"-c", script]
    with subprocess.Popen(program, executable="/bin/sh", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.read()
        until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "abcdefghijklmno\n")
        (said,) = processes(tree(tmp_path, process.pid))
        process.stdin.close()
    assert said.startswith(f"process {process.pid} (abcdefghijklmno) is ")
    assert said.isascii()


def until(condition: Callable[[], bool]) -> None:
    deadline = Deadline(10)
    while not condition():
        assert not deadline.passed
        time.sleep(0.01)


def test_not_all_of_many(tmp_path: Path) -> None:
    said = list(processes(tree(tmp_path, *[os.getpid()] * 5)))
    assert (len(said), said[-1]) == (4, "and 2 more")


def test_mostly_there_are_none(tmp_path: Path) -> None:
    assert list(processes(tree(tmp_path))) == []
    assert list(processes(tmp_path / "gone")) == []
