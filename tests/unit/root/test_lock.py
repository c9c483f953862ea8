from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common import job
from moorage.linux.process import Process
from moorage.root import lock
from moorage.root.lock import Busy, awaited, heir, inherited, lock_file, locked, take


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "STATE", tmp_path / "jobs")
    return tmp_path / "jobs"


@pytest.fixture
def held() -> Iterator[lock.Lock]:
    with locked(17) as held:
        yield held


def test_one_at_a_time(held: lock.Lock) -> None:
    with pytest.raises(Busy, match=r"job 17 is held by another process for more than 0\.1 s: see `fuser .*17\.lock`"):
        take(17, 0.1)


def test_jobs_do_not_wait_for_each_other(held: lock.Lock) -> None:
    with locked(18):
        pass


@pytest.mark.parametrize("limit", [0.0, 0.2])
def test_the_wait_has_a_limit(held: lock.Lock, limit: float) -> None:
    started = time.monotonic()
    with pytest.raises(Busy):
        take(17, limit)
    assert limit <= time.monotonic() - started < limit + 1


def test_it_is_free_again_afterwards() -> None:
    for _ in range(2):
        with locked(17):
            pass


def test_releasing_it_early_is_no_error(held: lock.Lock) -> None:
    held.release()
    with locked(17):
        held.release()
        with pytest.raises(Busy):
            take(17, 0)


def test_it_belongs_to_the_open_file(held: lock.Lock) -> None:
    """So a service manager keeps it that was given the descriptor."""
    kept = os.dup(held.descriptor)
    os.close(held.descriptor)
    held.descriptor = -1
    with pytest.raises(Busy):
        take(17, 0)
    inherited(17, kept).release()
    with locked(17):
        pass


@pytest.mark.parametrize("other", ["another job's", "a file", "removed"])
def test_what_is_no_lock_of_the_job_is_not_taken_for_one(tmp_path: Path, other: str) -> None:
    lock_file(17).parent.mkdir()
    descriptor = os.open(lock_file(18) if other == "another job's" else tmp_path / "file", os.O_CREAT | os.O_RDWR)
    if other != "removed":
        lock_file(17).touch()
    with pytest.raises(Busy, match="does not hold the lock of job 17"):
        inherited(17, descriptor)
    os.close(descriptor)


def test_a_descriptor_of_a_lock_that_another_holds_is_refused(held: lock.Lock) -> None:
    descriptor = os.open(lock_file(17), os.O_RDWR)
    with pytest.raises(Busy):
        inherited(17, descriptor)
    os.close(descriptor)


def test_removed_while_another_waits(held: lock.Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who waited has opened a file that is gone by the time he gets it: that lock would guard nothing."""
    waiting = os.open(lock_file(17), os.O_RDWR)
    held.remove()
    assert not lock_file(17).exists()
    opened = [waiting]
    monkeypatch.setattr(os, "open", lambda *words, real=os.open: opened.pop() if opened else real(*words))
    with locked(17, 1) as found:
        assert found.descriptor >= 0
        assert lock_file(17).exists()
        monkeypatch.undo()


def test_it_is_roots_alone(held: lock.Lock, jobs: Path) -> None:
    assert lock_file(17).stat().st_mode & 0o777 == 0o600
    assert jobs.stat().st_mode & 0o777 == 0o700


def test_no_link_is_followed(jobs: Path, tmp_path: Path) -> None:
    jobs.mkdir()
    lock_file(17).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        take(17, 0)


def test_who_is_to_have_it_next_is_known_while_another_holds_it(held: lock.Lock) -> None:
    assert heir(17) is None
    with awaited(17):
        assert heir(17) == Process.current()
        assert inherited(17, os.dup(held.descriptor)).path == lock_file(17)
    assert heir(17) is None


def test_a_lock_that_nobody_has_made_has_no_heir(jobs: Path) -> None:
    with awaited(17):
        assert heir(17) is None
    assert not jobs.exists()


@pytest.mark.parametrize("said", ["{", "[]", "17", '{"pid": 1}', '{"pid": 1, "start": 1, "more": 1}'])
def test_what_makes_no_sense_names_no_heir(held: lock.Lock, said: str) -> None:
    lock_file(17).write_text(said)
    assert heir(17) is None
