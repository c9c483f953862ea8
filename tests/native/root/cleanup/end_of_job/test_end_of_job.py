"""The end of a job on a node: everything goes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moorage.common.deadline import Deadline
from moorage.linux import cgroup, mounts
from moorage.linux.process import Process
from moorage.node.config import schema
from moorage.root import lock, rundir, state, systemd
from moorage.root.cleanup import end_of_job, trash
from moorage.root.cleanup.end_of_job import clean_up
from moorage.root.cleanup.sweep import Found, sweep
from moorage.root.records import record, start_log
from moorage.root.records.record import Ending
from moorage.root.state import State
from support.cgroups import leaf
from support.fakes import FakeCommand
from support.node import JOB, USER
from support.peers import Peer, forked
from support.processes import ended
from support.traces import KINDS, PLACE, await_none, cleared, traces


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left(moor: Callable[..., State], kind: schema.ScratchKind, systemctl: FakeCommand) -> None:
    moor(kind)
    (JOB.scratch / "graph/overlay").mkdir(parents=True)
    (JOB.scratch / "graph/file").write_text("x" * 100000)
    assert len(traces()) > 3
    assert cleared() == []
    assert await_none(traces) == []
    assert systemctl.calls == [["stop", "moorage-warden@17.service"]]


def test_nobody_takes_the_job_for_abandoned_meanwhile(
    moor: Callable[..., State], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the end of its warden and the Epilog's turn nobody holds the lock."""
    moor().changed(owner=Process(os.getpid(), 1))
    lock.take(JOB.id, 0).release()
    seen: list[Found] = []
    monkeypatch.setattr(systemd, "stop", lambda *_: seen.extend(sweep(Deadline(1), act=False)))
    assert cleared() == []
    assert [str(found) for found in seen] == ["job 17 is in use"]


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
        lambda: trash.put(PLACE / "17"),
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


def test_a_full_disk_keeps_nothing_alive(
    moor: Callable[..., State], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk that states lie on may be one that users can fill."""

    def full(_: State) -> None:
        raise OSError(28, "No space left on device")

    moor()
    monkeypatch.setattr(State, "save", full)
    with Peer(USER, tree / "init") as contained:
        assert cleared() == []
        assert ended(contained.pid, 0)
    assert traces() == []


def test_the_tree_is_ended_before_anything_of_the_users_is_looked_at(
    moor: Callable[..., State], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moor()
    with monkeypatch.context() as patch, Peer(USER, tree / "init") as contained:
        patch.setattr(cgroup, "processes", lambda _: 1 / 0)
        assert cleared() == []
        assert ended(contained.pid, 0)


def on_record() -> list[dict[str, Any]]:
    return [json.loads(line) for path in record.place().iterdir() for line in path.read_text().splitlines()]


def test_it_is_put_on_record(moor: Callable[..., State]) -> None:
    moor("directory")
    for word in ("podman", "ready", "down"):
        start_log.note(JOB, word)
    assert clean_up(JOB.id, Deadline(30), Ending("epilog", "0:0")) == []
    (kept,) = on_record()
    assert (kept["job"], kept["outcome"], kept["ending"], kept["leftovers"]) == (17, "ready", "orderly", [])
    assert kept["usage"]["cpu_seconds"] >= 0
    assert kept["scratch"] == "directory"


def test_what_stays_is_on_record_once(moor: Callable[..., State], monkeypatch: pytest.MonkeyPatch) -> None:
    moor()
    with monkeypatch.context() as patch:
        patch.setattr(end_of_job, "remove", lambda *_: {"x": "busy"})
        assert clean_up(JOB.id, Deadline(30), Ending("epilog"))
    (kept,) = on_record()
    assert [(one["what"], one["cause"]) for one in kept["leftovers"]] == [("run directory", "x: busy")]
    assert clean_up(JOB.id, Deadline(30), Ending("epilog")) == []
    assert on_record() == [kept]
    assert state.jobs() == []


def test_a_record_that_cannot_be_made_keeps_nothing(
    moor: Callable[..., State], monkeypatch: pytest.MonkeyPatch
) -> None:
    moor()
    monkeypatch.setattr(record, "ended", lambda *_: 1 / 0)
    assert clean_up(JOB.id, Deadline(30), Ending("epilog")) == []
    assert state.jobs() == []
