"""What the doctor says of the processes of a job that has not been cleaned up."""

from __future__ import annotations

import os
from pathlib import Path

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


def test_not_all_of_many(tmp_path: Path) -> None:
    said = list(processes(tree(tmp_path, *[os.getpid()] * 5)))
    assert (len(said), said[-1]) == (4, "and 2 more")


def test_mostly_there_are_none(tmp_path: Path) -> None:
    assert list(processes(tree(tmp_path))) == []
    assert list(processes(tmp_path / "gone")) == []
