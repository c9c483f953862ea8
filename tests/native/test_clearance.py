"""The end of a job on a node: everything goes, whatever its owner has planted; what does not is named."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage import cgroup, clearance, command, config, epilog, lock, mounts, rundir, scratch, state, trash
from moorage.clearance import Leftover, clear
from moorage.command import run
from moorage.deadline import Deadline
from moorage.process import Process
from moorage.settings import MIB
from moorage.state import Phase, State
from support.cgroups import leaf
from support.fakes import FakeCommand
from support.hung import hung_mount
from support.namespaces import MOUNT, unshare
from support.node import JOB, LIMITS, USER, node
from support.peers import Peer, forked
from support.processes import ended

# Loop devices are the whole machine's, and tell of other runs of these tests as well.
PLACE = Path(f"/var/lib/moorage/scratch-{os.getpid()}")
SIZE = 64 * MIB
NEW_USER = 0x10000000
KINDS: tuple[config.ScratchKind, ...] = ("loop", "tmpfs", "directory")


@pytest.fixture
def scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with node(monkeypatch) as scope:
        PLACE.mkdir(parents=True, mode=0o700)
        yield scope


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommand:
    monkeypatch.setattr(command, "PATH", f"{tmp_path}:{command.PATH}")
    return FakeCommand(tmp_path, "systemctl")


@pytest.fixture
def tree(scope: Path) -> Path:
    """What a warden has delegated, with what Slurm leaves around it because of that."""
    leaf(scope, "job_17", "step_0", "task_0")
    tree = leaf(scope, "job_17", "step_0", "task_1") / "k8s"
    (tree / "init").mkdir(parents=True)
    return tree


@pytest.fixture
def moor(scope: Path, systemctl: FakeCommand, tree: Path) -> Callable[..., State]:
    """Makes all that a job has on a node."""

    def moor(kind: config.ScratchKind = "tmpfs") -> State:
        wanted = config.Scratch(path=PLACE, kind=kind, size=SIZE)
        begun = State.begin(JOB, LIMITS, scratch.plan(JOB, wanted))
        begun.save()
        rundir.prepare()
        rundir.make(JOB, config.Run())
        scratch.make(JOB, wanted)
        return begun.changed(tree=tree, phase=Phase.DELEGATED, agent=Process(1, 1))

    return moor


def cleared(limit: float = 20.0) -> list[Leftover]:
    return clear(JOB.id, Deadline(limit))


def traces() -> list[str]:
    """All that there could be of the job, found without the code that removes it."""
    places = [JOB.run, *Path("/var/lib/moorage/jobs").glob("*"), *PLACE.glob("*"), *PLACE.glob(".*/*")]
    seen = [str(place) for place in places if os.path.lexists(place) and place.name != ".moorage-trash"]
    table = Path("/proc/self/mountinfo").read_text()
    seen += [line for line in table.splitlines() if "/run/moorage" in line or str(PLACE) in line]
    loops = [file.read_text().strip() for file in Path("/sys/block").glob("loop*/loop/backing_file")]
    seen += [file for file in loops if str(PLACE) in file]
    return seen + [str(path) for path in Path("/sys/fs/cgroup").glob(f"moorage-test-{os.getpid()}/*/job_17")]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left(moor: Callable[..., State], kind: config.ScratchKind, systemctl: FakeCommand) -> None:
    moor(kind)
    (JOB.scratch / "graph/overlay").mkdir(parents=True)
    (JOB.scratch / "graph/file").write_text("x" * 100000)
    assert len(traces()) > 3
    assert cleared() == []
    assert await_none(traces) == []
    assert systemctl.calls == [["stop", "moorage-warden@17.service"]]


def await_none(find: Callable[[], list[str]], limit: float = 5.0) -> list[str]:
    """The kernel lets go of a loop device a moment after its last user."""
    end = time.monotonic() + limit
    while (found := find()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def test_twice(moor: Callable[..., State], systemctl: FakeCommand) -> None:
    moor()
    assert cleared() == cleared() == []
    assert len(systemctl.calls) == 1, "the second time there is nothing to look at"


@pytest.mark.usefixtures("scope")
def test_of_a_job_that_was_never_here(systemctl: FakeCommand) -> None:
    assert cleared() == []
    assert systemctl.calls == []
    assert not lock.lock_file(JOB.id).exists()


def test_of_a_refused_job(scope: Path, systemctl: FakeCommand) -> None:
    rundir.prepare()
    rundir.refuse(JOB, "no subuids")
    assert cleared() == []
    assert traces() == []


@pytest.mark.parametrize("done", range(5))
def test_half_made(moor: Callable[..., State], tree: Path, done: int) -> None:
    """As after a Prolog, or an earlier clearance, that was killed in between."""
    moor("directory")
    undo: list[Callable[[], object]] = [
        lambda: cgroup.remove(tree),
        lambda: mounts.unmount(JOB.scratch),
        lambda: mounts.unmount(JOB.run),
        JOB.run.rmdir,
        lambda: trash.take(PLACE / "17"),
    ]
    for step in undo[: done + 1]:
        step()
    assert cleared() == []
    assert [trace for trace in traces() if ".moorage-trash" not in trace] == []


def test_the_processes_in_the_tree_end_and_no_others(moor: Callable[..., State], scope: Path, tree: Path) -> None:
    moor()
    beside = leaf(scope, "job_18", "step_0", "task_1") / "k8s"
    beside.mkdir()
    with Peer(USER, tree / "init") as contained, Peer(USER, beside) as neighbour:
        child = contained.do(forked)
        assert cleared() == []
        assert ended(contained.pid, 0)
        assert ended(child, 0)
        assert neighbour.do(os.getpid) == neighbour.pid
    assert beside.exists()


def test_what_slurm_could_not_remove_goes_too(moor: Callable[..., State], scope: Path) -> None:
    """Of other steps as well: 24.11 now and then leaves the extern step's."""
    moor()
    leaf(scope, "job_17", "step_extern", "task_special")
    others = leaf(scope, "job_18", "step_0", "task_1")
    assert cleared() == []
    assert not (scope / "job_17").exists()
    assert others.exists()


def test_a_task_that_still_runs_is_named_and_not_touched(moor: Callable[..., State], scope: Path) -> None:
    moor()
    place = leaf(scope, "job_17", "step_batch", "task_0")
    with Peer(USER, place) as task:
        (left,) = cleared()
        assert (left.what, left.ours) == ("process", False)
        assert left.name.startswith(str(task.pid))
        assert task.do(os.getpid) == task.pid
    assert cleared() == []
    assert not (scope / "job_17/step_0").exists()


def test_an_epilog_within_the_job_removes_only_its_own_step(moor: Callable[..., State], scope: Path) -> None:
    """PrologFlags=RunInJob."""
    moor()
    extern = leaf(scope, "job_17", "step_extern", "task_special")
    with Peer(0, extern.parents[1] / "slurm") as stepd:
        assert stepd.do(cleared) == []
        assert sorted(path.name for path in (scope / "job_17").glob("step_*")) == ["step_extern"]
        assert extern.exists()


def test_what_was_used_is_told_once(
    moor: Callable[..., State], scope: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the warden could not write it down, because it was killed as well."""
    moor()
    with Peer(USER, leaf(scope, "job_17", "step_batch", "task_0")):
        cleared()
        known = state.load(JOB.id)
        assert known
        assert known.usage
        assert capsys.readouterr().err.count(f"job 17 end: used {known.usage}\n") == 1
        cleared()
        assert "used" not in capsys.readouterr().err


class TestPlanted:
    """What the owner of the job can do so that it stays."""

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("place", ["user", "user/a", "scratch", "scratch/a"])
    def test_a_mount_that_hangs(self, moor: Callable[..., State], kind: config.ScratchKind, place: str) -> None:
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
        run(["mount", "-t", "fusectl", "none", "/sys/fs/fuse/connections"], ok=(0, 32))
        with Peer(0, tree / "init") as waiting, hung_mount(JOB.user_run):
            waiting.begin(os.listdir, JOB.user_run)
            await_blocked(waiting.pid)
            assert cleared() == []
            assert ended(waiting.pid, 0)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_descriptor(self, moor: Callable[..., State], kind: config.ScratchKind) -> None:
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
    def test_a_mount_namespace(self, moor: Callable[..., State], kind: config.ScratchKind, uid: int) -> None:
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
    def test_mounts_within_mounts(self, moor: Callable[..., State], kind: config.ScratchKind) -> None:
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
        monkeypatch.setattr(clearance, "REMOVING", 0.0)
        moor("directory")
        (JOB.scratch / "a/b").mkdir(parents=True)
        assert cleared() == []
        assert not (PLACE / "17").exists()
        assert systemctl.calls[-1] == ["start", "--no-block", "moorage-trash.service"]
        assert len(traces()) == 1, "its content, in the trash"
        assert trash.empty(PLACE, Deadline(10)) == {}
        assert traces() == []


def refuse(point: Path, *, lazy: bool = False) -> None:
    raise PermissionError(1, "Operation not permitted", str(point))


def await_blocked(pid: int, limit: float = 10.0) -> None:
    end = time.monotonic() + limit
    while Path(f"/proc/{pid}/wchan").read_text() != "request_wait_answer":
        assert time.monotonic() < end
        time.sleep(0.01)


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
        monkeypatch.setattr(epilog, "clear", lambda *_: [self.left("process")])
        monkeypatch.setenv("SLURM_JOB_ID", "17")
        with monkeypatch.context() as patch, Peer(USER, tree / "init") as contained:
            patch.setattr(cgroup, "put", lambda *_: None)
            started = time.monotonic()
            with pytest.raises(SystemExit) as exit_:
                epilog.main()
            assert exit_.value.code == 0
            assert time.monotonic() - started < 4, "of the 5 s some were to be left for the rest"
            assert Process.of(contained.pid).alive
        assert cleared() == []
        assert traces() == []

    def test_a_unit_that_does_not_stop(self, moor: Callable[..., State], systemctl: FakeCommand) -> None:
        moor()
        FakeCommand(systemctl.path.parent, "systemctl", stderr="Failed to connect to bus", code=1)
        left = self.left("unit")
        assert left.ours
        assert "Failed to connect to bus" in left.cause
        assert JOB.run.is_mount(), "nothing is done while the warden may live"

    def test_a_lock_that_is_held(self, moor: Callable[..., State], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clearance, "LOCKING", 0.1)
        moor()
        with lock.locked(JOB.id):
            assert self.left("lock").ours
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
            patch.setattr(trash, "take", lambda _: 1 / 0)
            patch.setattr(cgroup, "remove", lambda _: 1 / 0)
            (left,) = cleared()
        assert (left.what, left.ours) == ("cgroup", True)
        assert "ZeroDivisionError" in left.cause
        assert not JOB.run.exists()


def test_a_killed_epilog_is_no_obstacle(moor: Callable[..., State]) -> None:
    """Its lock goes with it, and the next one does the rest."""
    moor("loop")
    for _ in range(20):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            cleared()
            os._exit(0)
        os.waitpid(child, 0)
    assert cleared() == []
    assert await_none(traces) == []
