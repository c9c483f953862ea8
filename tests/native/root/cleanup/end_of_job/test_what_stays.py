"""What cannot be removed is named, with whose it is."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from moorage.common.deadline import Deadline
from moorage.linux import cgroup, mounts
from moorage.linux.process import Process
from moorage.node.config.values import MIB
from moorage.root import epilog, lock, state
from moorage.root.cleanup import end_of_job, remove_tree, trash
from moorage.root.cleanup.end_of_job import Leftover
from moorage.root.state import State
from support.cgroups import leaf
from support.fakes import FakeCommand
from support.hung import await_left_behind, hung_mount, leave_behind
from support.node import JOB, USER
from support.peers import Peer
from support.processes import ended
from support.traces import PLACE, cleared, traces


class TestWhatStays:
    def left(self, what: str) -> Leftover:
        found = cleared(5)
        assert [left.what for left in found] == [what]
        assert state.load(JOB.id), "the next one finds it again"
        return found[0]

    def test_a_process_that_does_not_die(
        self, moor: Callable[..., State], tree: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No user may have a node drained by that; the next sweep comes back to it."""
        moor()
        monkeypatch.setattr(epilog, "clean_up", lambda *_: [self.left("process")])
        monkeypatch.setenv("SLURM_JOB_ID", "17")
        with monkeypatch.context() as patch, Peer(USER, tree / "init") as contained:
            patch.setattr(cgroup, "put", lambda *_: None)
            patch.setattr(cgroup, "_kill_each", lambda _: None)
            started = time.monotonic()
            with pytest.raises(SystemExit) as exit_:
                epilog.main()
            assert exit_.value.code == 0
            assert time.monotonic() - started < 4, "of the 5 s some were to be left for the rest"
            assert Process.of(contained.pid).alive
        assert cleared() == []
        assert traces() == []

    def test_a_process_that_dies_late(
        self, moor: Callable[..., State], tree: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It waited for something of another job, say, and does not any more once all the rest is removed."""
        moor()
        with Peer(USER, tree / "init") as contained:

            def remove(parent: int, name: str, deadline: Deadline) -> remove_tree.Kept:
                contained.kill()
                return remove_tree.remove(parent, name, deadline)

            monkeypatch.setattr(end_of_job, "remove", remove)
            monkeypatch.setattr(cgroup, "put", lambda *_: None)
            monkeypatch.setattr(cgroup, "_kill_each", lambda _: None)
            assert cleared(2) == []
        assert traces() == []

    @pytest.mark.parametrize("seen", [True, False])
    def test_a_thread_that_no_list_of_processes_has(
        self, moor: Callable[..., State], tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: bool
    ) -> None:
        """Its first thread has ended, and it hangs in its own end: its cgroup looks empty, and cannot be removed."""
        moor()
        file = tmp_path / "hung"
        file.touch()
        with monkeypatch.context() as patch, Peer(0, tree / "init") as hidden, hung_mount(file):
            hidden.do(os.open, file, os.O_RDONLY)
            hidden.begin(leave_behind, signal.pause)
            await_left_behind(hidden.pid)
            if not seen:
                patch.setattr(cgroup, "threads", lambda _: [])
            left = self.left("process" if seen else "cgroup")
            assert not left.ours
            assert cgroup.processes(tree) == []
        assert cleared() == []
        assert traces() == []

    @pytest.mark.parametrize(("error", "ours"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EIO, True)])
    def test_a_lock_that_cannot_be_made(
        self, moor: Callable[..., State], monkeypatch: pytest.MonkeyPatch, error: int, ours: bool
    ) -> None:
        def take(*_: object) -> lock.Lock:
            raise OSError(error, os.strerror(error))

        moor()
        monkeypatch.setattr(lock, "take", take)
        assert self.left("lock").ours is ours

    def test_a_unit_that_does_not_stop(self, moor: Callable[..., State], tree: Path, systemctl: FakeCommand) -> None:
        moor()
        FakeCommand(systemctl.path.parent, "systemctl", stderr="Failed to connect to bus", code=1)
        with Peer(USER, tree / "init") as contained:
            left = self.left("unit")
            assert ended(contained.pid, 0)
        assert left.ours
        assert "Failed to connect to bus" in left.cause
        assert JOB.run.is_mount(), "nothing else is done while the warden may live"

    def test_a_lock_that_is_held(self, moor: Callable[..., State], tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(end_of_job, "LOCKING", 0.1)
        moor()
        with lock.locked(JOB.id), Peer(USER, tree / "init") as contained:
            assert self.left("lock").ours
            assert ended(contained.pid, 0)
        assert JOB.run.is_mount()

    def test_a_mount(self, moor: Callable[..., State], systemctl: FakeCommand, monkeypatch: pytest.MonkeyPatch) -> None:
        moor()
        umount = FakeCommand(systemctl.path.parent, "umount", stderr="umount: no", code=32)
        with monkeypatch.context() as patch:
            patch.setattr(mounts, "unmount", refuse)
            found = cleared(5)
        assert {(left.what, left.name, left.ours) for left in found} >= {("mount", str(JOB.run), True)}
        assert epilog.exit_code(found) == 1
        umount.path.unlink()
        assert cleared() == []

    def test_a_program_that_does_not_unmount_is_not_the_only_way(
        self, moor: Callable[..., State], systemctl: FakeCommand
    ) -> None:
        moor()
        FakeCommand(systemctl.path.parent, "umount", stderr="umount: no", code=32)
        assert cleared() == []
        assert traces() == []

    def test_a_scratch_that_others_can_write(self, moor: Callable[..., State]) -> None:
        moor("directory")
        PLACE.chmod(0o777)
        left = self.left("scratch")
        assert left.ours
        assert "others than root" in left.cause
        PLACE.chmod(0o700)
        assert cleared() == []

    def test_a_scratch_on_a_full_disk(self, moor: Callable[..., State]) -> None:
        """Where the trash is there already, nothing needs room; where not, those who fill the disk are to blame."""
        mounts.mount_tmpfs(PLACE, size=MIB, inodes=20, uid=0, gid=0, mode=0o700)
        for there in (False, True):
            moor("directory")
            if not there:
                (PLACE / trash.NAME).rmdir()
            fill(JOB.scratch)
            if not there:
                assert not self.left("scratch").ours
                next((PLACE / str(JOB.id)).iterdir()).unlink()
            assert cleared() == []
            assert traces() == [line for line in traces() if f" {PLACE} " in line]

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"job": 17}', "null"])
    def test_a_state_that_cannot_be_understood(self, moor: Callable[..., State], content: str) -> None:
        moor()
        JOB.state.write_text(content)
        (left,) = cleared()
        assert (left.what, left.ours) == ("state", True)
        assert not JOB.run.exists(), "what the number alone tells is done"

    def test_a_tree_of_another_job(self, moor: Callable[..., State], scope: Path) -> None:
        other = leaf(scope, "job_18", "step_0", "task_1") / "k8s"
        other.mkdir()
        moor().changed(tree=other)
        with Peer(USER, other) as neighbour:
            left = self.left("state")
            assert "no task of this job" in left.cause
            assert neighbour.do(os.getpid) == neighbour.pid

    def test_a_tree_of_another_boot(self, moor: Callable[..., State], tree: Path) -> None:
        """The path may be a later job's, which has the same number."""
        moor().changed(boot="00000000-0000-0000-0000-000000000000")
        with Peer(USER, tree / "init") as later:
            assert cleared() == []
            assert later.do(os.getpid) == later.pid

    def test_an_error_nobody_foresaw(self, moor: Callable[..., State], monkeypatch: pytest.MonkeyPatch) -> None:
        moor()
        with monkeypatch.context() as patch:
            patch.setattr(trash, "put", lambda _: 1 / 0)
            patch.setattr(cgroup, "remove", lambda _: 1 / 0)
            (left,) = cleared()
        assert (left.what, left.ours) == ("cgroup", True)
        assert "ZeroDivisionError" in left.cause
        assert not JOB.run.exists()


def fill(place: Path) -> None:
    """With as many files as there can be."""
    with suppress(OSError):
        for number in range(100):
            (place / str(number)).touch()
    assert os.statvfs(place).f_ffree == 0


def refuse(point: Path, *, lazy: bool = False) -> None:
    raise PermissionError(1, "Operation not permitted", str(point))
