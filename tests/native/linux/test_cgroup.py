"""Cgroups of the real kernel: found, killed, waited for, removed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.deadline import Deadline
from moorage.linux import cgroup
from support.cgroups import ROOT, await_event, leaf, slurm_scope
from support.hung import await_left_behind, leave_behind
from support.namespaces import MOUNT, fresh
from support.peers import Peer, forked
from support.processes import ended
from support.unit import confine

USER = 12345
NAMES = frozenset({"job_17", "s5K1KKYAYG5D00"})


@pytest.fixture
def scope() -> Iterator[Path]:
    with fresh(MOUNT), slurm_scope() as scope:
        yield scope


@pytest.fixture
def tree(scope: Path) -> Path:
    made = leaf(scope, "job_17", "step_0", "task_1") / "k8s"
    (made / "init").mkdir(parents=True)
    return made


def own(directory: Path, uid: int = USER) -> None:
    for file in (directory, directory / "cgroup.procs", directory / "cgroup.subtree_control"):
        os.chown(file, uid, uid)


@pytest.mark.parametrize("job", sorted(NAMES))
def test_a_task_is_found(scope: Path, job: str) -> None:
    place = leaf(scope, job, "step_0", "task_1")
    with Peer(USER, place) as peer:
        found = cgroup.leaf_of(peer.pid, NAMES)
    assert found == cgroup.Leaf(place)
    assert found.chain == [scope, scope / job, scope / job / "step_0", scope / job / "step_0/user", place]


@pytest.mark.parametrize(
    "place",
    [
        "job_18/step_0/user/task_0",
        "job_17/step_extern/user/task_special",
        "job_17/step_0/user/task_0/k8s/init",
        "job_17/step_0/slurm",
        "job_17/step_0",
        "system",
    ],
)
def test_nothing_else_is_a_task(scope: Path, place: str) -> None:
    directory = scope / place
    directory.mkdir(parents=True)
    with Peer(USER, directory) as peer, pytest.raises(cgroup.NoTask):
        cgroup.leaf_of(peer.pid, NAMES)


@pytest.mark.parametrize("part", ["", "job_17", "job_17/step_0", "job_17/step_0/user", "job_17/step_0/user/task_0"])
def test_what_a_user_has_made_is_no_task(scope: Path, part: str) -> None:
    place = leaf(scope, "job_17", "step_0", "task_0")
    os.chown(scope / part, USER, USER)
    with Peer(USER, place) as peer, pytest.raises(cgroup.NoTask, match="not made by Slurm"):
        cgroup.leaf_of(peer.pid, NAMES)


def test_a_process_that_is_gone_has_no_task() -> None:
    with Peer(USER) as peer:
        peer.kill()
        with pytest.raises(ProcessLookupError):
            cgroup.leaf_of(peer.pid, NAMES)


def test_everything_below_is_killed(tree: Path) -> None:
    beside = leaf(tree.parents[4], "job_17", "step_0", "task_0")
    deep = tree / "a/b/c"
    deep.mkdir(parents=True)
    with Peer(USER, tree / "init") as first, Peer(USER, deep) as second, Peer(0, beside) as neighbour:
        children = [first.do(forked), second.do(forked)]
        cgroup.kill(tree, Deadline(10))
        assert "populated 0" in (tree / "cgroup.events").read_text()
        assert all(ended(pid, 0) for pid in (first.pid, second.pid, *children))
        assert neighbour.do(os.getpid) == neighbour.pid


def test_a_tree_its_owner_has_frozen_is_killed(tree: Path) -> None:
    own(tree / "init")
    with Peer(USER, tree / "init") as peer:
        (tree / "init/cgroup.freeze").write_text("1")
        await_event(tree / "init", "frozen 1")
        cgroup.kill(tree, Deadline(10))
        assert ended(peer.pid, 0)


def test_processes_in_threaded_cgroups_are_killed(tree: Path) -> None:
    threaded = tree / "init/threads"
    threaded.mkdir()
    with Peer(USER, tree / "init") as peer:
        (threaded / "cgroup.type").write_text("threaded")
        (threaded / "cgroup.threads").write_text(str(peer.pid))
        assert cgroup.processes(tree) == [peer.pid]
        cgroup.kill(tree, Deadline(10))
        assert ended(peer.pid, 0)


def test_a_process_whose_first_thread_has_ended_is_killed(tree: Path) -> None:
    """The kernel's own kill passes over it."""
    with Peer(USER, tree / "init") as peer:
        peer.begin(leave_behind, forking)
        await_left_behind(peer.pid)
        cgroup.kill(tree, Deadline(10))
        assert "populated 0" in (tree / "cgroup.events").read_text()
        assert ended(peer.pid, 0)


def test_the_warden_which_may_signal_nobody_leaves_it_frozen(tree: Path) -> None:
    with Peer(USER, tree / "init") as peer, Peer(0) as warden:
        peer.begin(leave_behind, forking)
        await_left_behind(peer.pid)
        warden.do(confine)
        assert peer.pid in warden.do(stuck, tree)
        assert "frozen 1" in (tree / "cgroup.events").read_text()
        cgroup.kill(tree, Deadline(10))
        assert ended(peer.pid, 0)


def forking() -> None:
    """What has ended this way, and makes more of it."""
    for _ in range(100):
        time.sleep(0.1)
        if os.fork() == 0:
            leave_behind(time.sleep, 20)


def stuck(tree: Path) -> list[int]:
    try:
        cgroup.kill(tree, Deadline(2))
    except cgroup.Stuck as error:
        return error.pids
    return []


def test_the_limit_holds_and_names_who_does_not_end(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "put", lambda *_: None)
    with Peer(USER, tree / "init") as peer:
        started = time.monotonic()
        with pytest.raises(cgroup.Stuck, match=rf"1 killed process.*: {peer.pid} \(") as stuck:
            cgroup.kill(tree, Deadline(0.3))
        assert 0.3 <= time.monotonic() - started < 2
        assert stuck.value.pids == [peer.pid]


def test_waiting_ends_with_the_last_process_and_not_with_the_limit(tree: Path) -> None:
    with Peer(USER, tree / "init"):
        started = time.monotonic()
        cgroup.kill(tree, Deadline(30))
        assert time.monotonic() - started < 5


def test_what_is_gone_already_is_no_error(tree: Path) -> None:
    assert cgroup.remove(tree)
    cgroup.kill(tree, Deadline(1))
    assert cgroup.remove(tree)
    assert cgroup.processes(tree) == []


def test_what_goes_by_itself_meanwhile_is_no_error(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm removes its own directories at the same time."""
    real = cgroup._children
    monkeypatch.setattr(cgroup, "_children", lambda directory: [*real(directory), "gone"])
    assert cgroup.processes(tree) == []
    assert cgroup.remove(tree)


def test_a_tree_longer_than_any_path_is_removed(tree: Path) -> None:
    name = "n" * 200
    made = make_deep(tree, name, 40)
    assert made * len(name) > os.pathconf("/", "PC_PATH_MAX")
    for number in range(30):
        (tree / f"wide{number}").mkdir()
    assert cgroup.remove(tree)
    assert not tree.exists()


def make_deep(top: Path, name: str, depth: int) -> int:
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    return depth


def test_what_still_holds_a_process_stays_and_the_rest_goes(tree: Path) -> None:
    (tree / "empty/below").mkdir(parents=True)
    with Peer(USER, tree / "init"):
        assert not cgroup.remove(tree)
        assert (tree / "init").exists()
        assert not (tree / "empty").exists()
    assert cgroup.remove(tree)


def test_its_owner_can_make_nothing_in_there_once_it_is_being_removed(tree: Path) -> None:
    """He cannot keep it alive by making a new cgroup for each one removed, even through a descriptor."""
    own(tree)
    with Peer(USER) as owner, Peer(USER, tree / "init"):
        held = owner.do(os.open, tree, os.O_RDONLY)
        owner.do(mkdir_in, held, "before")
        assert not cgroup.remove(tree)
        with pytest.raises(PermissionError):
            owner.do(mkdir_in, held, "after")
        assert tree.stat().st_uid == 0


def mkdir_in(directory: int, name: str) -> None:
    os.mkdir(name, dir_fd=directory)


def test_the_root_is_where_it_always_is() -> None:
    assert cgroup.ROOT == ROOT


@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_one_that_goes_while_it_is_entered_hides_no_other(
    tree: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """A user can make and remove them without end."""

    def step(here: int, name: str) -> int:
        there = real(here, name)
        if name == gone:
            (tree / gone).rmdir()
        return there

    real = cgroup._step
    monkeypatch.setattr(cgroup, "_step", step)
    for name in "abc":
        (tree / name).mkdir()
    others = [tree / name for name in "abc" if name != gone]
    with Peer(USER, others[0]) as first, Peer(USER, others[1]) as second:
        assert sorted(cgroup.processes(tree)) == sorted([first.pid, second.pid])
        (tree / gone).mkdir()
        assert not cgroup.remove(tree)
    (tree / gone).mkdir()
    assert cgroup.remove(tree)


def test_where_a_process_is(tree: Path) -> None:
    with Peer(USER, tree / "init") as peer:
        for place in (tree / "init", tree, tree.parents[4], cgroup.ROOT):
            assert cgroup.holds(place, peer.pid)
        for place in (tree / "ini", tree / "init/below", tree.parent / "k8"):
            assert not cgroup.holds(place, peer.pid)
