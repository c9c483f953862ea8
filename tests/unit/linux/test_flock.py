"""Locks of files: exclusive or shared, and waited for until a deadline."""

from __future__ import annotations

from pathlib import Path

from moorage.common.deadline import Deadline
from moorage.linux import flock


def test_readers_share_a_lock(tmp_path: Path) -> None:
    with flock.opened(tmp_path / "lock") as one, flock.opened(tmp_path / "lock") as other:
        assert flock.try_lock(one, flock.SHARED)
        assert flock.try_lock(other, flock.SHARED)
        assert not flock.try_lock(other, flock.EXCLUSIVE)


def test_a_writer_is_alone_until_it_unlocks(tmp_path: Path) -> None:
    with flock.opened(tmp_path / "lock") as one, flock.opened(tmp_path / "lock") as other:
        assert flock.try_lock(one)
        assert not flock.lock(other, flock.SHARED, Deadline(0.02), retry=0.01)
        flock.unlock(one)
        assert flock.lock(other, flock.EXCLUSIVE, Deadline(0))


def test_a_lock_ends_with_its_file(tmp_path: Path) -> None:
    with flock.opened(tmp_path / "lock") as one:
        assert flock.try_lock(one)
    with flock.opened(tmp_path / "lock") as other:
        assert flock.try_lock(other)


def test_a_waiter_gets_a_lock_that_is_unlocked_meanwhile(tmp_path: Path) -> None:
    with flock.opened(tmp_path / "lock") as one, flock.opened(tmp_path / "lock") as other:
        assert flock.try_lock(one)

        class Unlocking(Deadline):
            @property
            def passed(self) -> bool:
                flock.unlock(one)
                return False

        assert flock.lock(other, flock.EXCLUSIVE, Unlocking(1), retry=0.001)
