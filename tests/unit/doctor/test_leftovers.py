"""What the doctor says of a job that has not been cleaned up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.common import job
from moorage.doctor import leftovers
from moorage.root import state
from moorage.root.cleanup.sweep import Found
from moorage.root.state import State
from support.node import JOB, LIMITS

WHY = "its processes are gone"
GONE = 1 << 22


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setattr(job, "STATE", tmp_path / "jobs")
    monkeypatch.setattr(job, "RUN", tmp_path / "run")
    monkeypatch.setattr(leftovers, "sweep", lambda *_, **__: iter([Found(17, "would be removed", why=WHY)]))

    def causes(*pids: int) -> Iterator[str]:
        tree = tmp_path / "k8s"
        tree.mkdir()
        (tree / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        State.begin(JOB, LIMITS).changed(tree=tree)
        return (finding.cause for finding in leftovers.check(tmp_path / "scratch"))

    return lambda *pids: next(iter(causes(*pids)))


def test_its_processes_are_named(said: Callable[..., str]) -> None:
    name = Path("/proc/self/comm").read_text().strip()
    line = said(GONE, os.getpid())
    assert line == f"job 17 has not been cleaned up: {WHY}; process {os.getpid()} ({name}) is running"


def test_not_all_of_many(said: Callable[..., str]) -> None:
    assert said(*[os.getpid()] * 5).endswith("is running; and 2 more")


def test_mostly_there_are_none(said: Callable[..., str]) -> None:
    assert said() == f"job 17 has not been cleaned up: {WHY}"


def test_a_job_of_which_only_links_are_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state, "load", lambda _: None)
    monkeypatch.setattr(job, "RUN", tmp_path)
    monkeypatch.setattr(leftovers, "sweep", lambda *_, **__: iter([Found(17, "would be removed", why="links")]))
    (found,) = leftovers.check(tmp_path / "scratch")
    assert (found.cause, found.kind) == ("job 17 has not been cleaned up: links", "leftover")
