"""What the owner of a job can do so that something of it stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.common.command import run
from moorage.common.deadline import Deadline
from moorage.linux import mounts
from moorage.node.config import schema
from moorage.root.cleanup import end_of_job, trash
from moorage.root.state import State
from support.fakes import FakeCommand
from support.hung import await_blocked, await_left_behind, hang, hung_mount, leave_behind
from support.namespaces import MOUNT, unshare
from support.node import JOB, USER
from support.peers import Peer
from support.processes import ended
from support.traces import KINDS, NEW_USER, PLACE, await_none, cleared, traces


class TestPlanted:
    """What the owner of the job can do so that it stays."""

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("place", ["user", "user/a", "scratch", "scratch/a"])
    def test_a_mount_that_hangs(self, moor: Callable[..., State], kind: schema.ScratchKind, place: str) -> None:
        moor(kind)
        point = JOB.run / place
        point.mkdir(exist_ok=True)
        with hung_mount(point):
            started = time.monotonic()
            assert cleared() == []
            assert time.monotonic() - started < 5
        assert await_none(traces) == []

    def test_a_process_that_waits_for_a_mount_that_hangs(self, moor: Callable[..., State], tree: Path) -> None:
        """It would not die of SIGKILL."""
        moor()
        with Peer(0, tree / "init") as waiting, hung_mount(JOB.user_run):
            waiting.begin(os.listdir, JOB.user_run)
            await_blocked(waiting.pid)
            assert cleared() == []
            assert ended(waiting.pid, 0)

    def test_a_process_that_waits_for_a_mount_that_it_serves_itself(
        self, moor: Callable[..., State], tree: Path
    ) -> None:
        """In a mount namespace of its own, so that the node does not see the mount; it would not die of SIGKILL."""
        moor()
        with Peer(0, tree / "init") as waiting:
            waiting.do(unshare, MOUNT)
            waiting.do(run, ["mount", "--make-rprivate", "/"])
            waiting.do(hang, JOB.user_run)
            assert JOB.user_run not in [mount.point for mount in mounts.table()]
            waiting.begin(os.listdir, JOB.user_run)
            await_blocked(waiting.pid)
            assert cleared() == []
            assert ended(waiting.pid, 0)

    def test_a_thread_that_waits_for_it_alone(self, moor: Callable[..., State], tree: Path) -> None:
        """Its first thread has ended, so that no list of processes has it."""
        moor()
        with Peer(0, tree / "init") as waiting:
            waiting.do(unshare, MOUNT)
            waiting.do(run, ["mount", "--make-rprivate", "/"])
            waiting.do(hang, JOB.user_run)
            waiting.begin(leave_behind, os.listdir, JOB.user_run)
            await_left_behind(waiting.pid)
            assert cleared() == []
            assert ended(waiting.pid, 0)

    def test_a_mount_of_the_nodes_is_left_alone(self, moor: Callable[..., State], tree: Path, tmp_path: Path) -> None:
        """His processes see it as well; it is not his."""
        moor()
        point = tmp_path / "hung"
        point.mkdir()
        with Peer(0, tree / "init"), Peer(0) as reader, hung_mount(point):
            reader.begin(os.listdir, point)
            await_blocked(reader.pid)
            assert cleared() == []
            assert reader.waiting

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_descriptor(self, moor: Callable[..., State], kind: schema.ScratchKind) -> None:
        moor(kind)
        (JOB.scratch / "file").write_text("x")
        with Peer(USER) as other_job:
            for place in (JOB.scratch, JOB.user_run):
                other_job.do(os.open, place, os.O_RDONLY)
            other_job.do(os.chdir, JOB.scratch)
            assert cleared() == []
            seen = traces()
            assert [trace for trace in seen if "(deleted)" not in trace] == []
        assert await_none(traces) == []

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("uid", [0, USER])
    def test_a_mount_namespace(self, moor: Callable[..., State], kind: schema.ScratchKind, uid: int) -> None:
        """As Podman of his other job has one: nothing is mounted there any more either."""
        moor(kind)
        with Peer(uid) as other_job:
            other_job.do(unshare, MOUNT | (NEW_USER if uid else 0))
            seen = Path(f"/proc/{other_job.pid}/mountinfo")
            assert str(JOB.scratch) in seen.read_text()
            assert cleared() == []
            assert str(JOB.run) not in seen.read_text()
            assert await_none(traces) == []

    @pytest.mark.parametrize("kind", KINDS)
    def test_mounts_within_mounts(self, moor: Callable[..., State], kind: schema.ScratchKind) -> None:
        moor(kind)
        for name in ("a", "a/b", "a"):
            (JOB.scratch / name).mkdir(exist_ok=True)
            run(["mount", "-t", "tmpfs", "tmpfs", JOB.scratch / name])
        assert cleared() == []
        assert await_none(traces) == []

    def test_a_link_in_the_place_of_a_mount_point(self, moor: Callable[..., State]) -> None:
        """Nothing that the table of mounts says of his directories is taken for a path."""
        moor()
        run(["mount", "-t", "tmpfs", "tmpfs", PLACE])
        (JOB.user_run / "a/scratch").mkdir(parents=True)
        run(["mount", "-t", "tmpfs", "tmpfs", JOB.user_run / "a/scratch"])
        (JOB.user_run / "a").rename(JOB.user_run / "b")
        (JOB.user_run / "a").symlink_to("/var/lib/moorage")
        assert cleared() == []
        assert mounts.below(PLACE) == [PLACE]
        run(["umount", PLACE])

    def test_more_than_there_is_time_for(
        self, moor: Callable[..., State], systemctl: FakeCommand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(end_of_job, "REMOVING", 0.0)
        moor("directory")
        (JOB.scratch / "a/b").mkdir(parents=True)
        assert cleared() == []
        assert not (PLACE / "17").exists()
        assert systemctl.calls[-1] == ["start", "--no-block", "moorage-trash.service"]
        assert len(traces()) == 1, "its content, in the trash"
        assert trash.empty(PLACE, Deadline(10)) == {}
        assert traces() == []
