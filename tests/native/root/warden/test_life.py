"""From the start of a warden to the end of its agent, through its own death."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from moorage.common import warden_protocol
from moorage.linux.process import Process
from moorage.root import lock
from moorage.root.state import Phase, State
from moorage.root.warden import warden
from support.callers import (
    SOCKET,
    ask,
    await_gone,
    await_same,
    delegated,
    exit_code_of,
    keep_connection,
)
from support.cgroups import await_event, leaf
from support.node import JOB, USER, Manager, saved
from support.peers import Peer, forked
from support.processes import ended


class TestEnd:
    @pytest.fixture
    def tree(self, manager: Manager, agent: Peer, placeholder: Peer) -> Path:
        return delegated(agent, placeholder)

    def contained(self, agent: Peer, tree: Path) -> int:
        """A process in a container, as it were."""
        child: int = agent.do(forked)
        agent.do(os.makedirs, tree / "container/inner")
        agent.do(Path.write_text, tree / "container/inner/cgroup.procs", str(child))
        return child

    def test_all_of_it_ends_with_the_agent(self, agent: Peer, tree: Path, tasks: tuple[Path, Path]) -> None:
        child = self.contained(agent, tree)
        agent.kill()
        await_gone(tree)
        assert ended(child, 0)
        assert tasks[1].exists()
        state = saved()
        assert state.usage
        assert state.usage.cpu_seconds >= 0

    def test_a_child_that_holds_its_connection_does_not_stand_in_for_it(
        self, agent: Peer, placeholder: Peer, tree: Path, tasks: tuple[Path, Path]
    ) -> None:
        agent.do(keep_connection)
        child = agent.do(forked)
        agent.kill()
        await_gone(tree)
        assert Process.of(child).alive
        assert Process.of(placeholder.pid).alive

    def test_what_it_used_is_told_afterwards(self, agent: Peer, tree: Path, tasks: tuple[Path, Path]) -> None:
        agent.kill()
        await_gone(tree)
        used = saved().usage
        assert used
        assert warden_protocol.call(SOCKET, warden_protocol.Usage(), 5) == used.as_dict()

    def test_nobody_moves_in_again(self, agent: Peer, placeholder: Peer, tree: Path) -> None:
        """Until the end `user/cgroup.procs` is the owner's, and the placeholder still lives in there."""
        agent.kill()
        await_gone(tree)
        assert (tree.parents[1] / "cgroup.procs").stat().st_uid == 0


class TestRestart:
    def test_the_job_goes_on(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        tree = delegated(agent, placeholder)
        manager.kill()
        with pytest.raises(lock.Busy):
            lock.take(JOB.id, 0)
        manager.start()
        assert agent.do(ask, "delegate") == {"tree": str(tree)}
        assert agent.do(ask, "usage")["cpu_seconds"] >= 0
        agent.kill()
        await_gone(tree)

    def test_callers_wait_for_it(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        placeholder.begin(ask, "lend")
        manager.kill()
        agent.begin(ask, "delegate")
        manager.start()
        assert agent.result() == placeholder.result()

    def test_an_agent_that_died_meanwhile_is_noticed(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        tree = delegated(agent, placeholder)
        manager.kill()
        agent.kill()
        manager.start()
        await_gone(tree, 1)

    def test_another_process_with_its_number_is_not_taken_for_it(
        self, manager: Manager, agent: Peer, placeholder: Peer
    ) -> None:
        tree = delegated(agent, placeholder)
        manager.kill()
        saved().changed(agent=Process(agent.pid, Process.of(agent.pid).start - 1))
        manager.start()
        await_gone(tree, 1)
        assert Process.of(agent.pid).alive

    def test_half_a_delegation_is_taken_back(self, manager: Manager, tasks: tuple[Path, Path], agent: Peer) -> None:
        tree = tasks[1] / "k8s"
        (tree / "init").mkdir(parents=True)
        manager.kill()
        saved().changed(tree=tree, agent=Process.of(agent.pid))
        manager.start()
        await_gone(tree, 1)
        with pytest.raises(warden_protocol.Refused, match="has ended"):
            agent.do(ask, "delegate")

    def test_the_lock_is_free_once_the_unit_is_stopped(self, manager: Manager) -> None:
        manager.stop()
        lock.take(JOB.id, 0).release()


@pytest.mark.parametrize("anew", [False, True])
def test_one_that_hangs_in_the_kernel_keeps_no_lock(manager: Manager, anew: bool) -> None:
    """It has none itself. The Epilog gets it once systemd has given up, and ends all that the job has."""
    if anew:
        manager.kill()
        manager.start()
    with pytest.raises(lock.Busy):
        lock.take(JOB.id, 0)
    os.kill(manager.pid, signal.SIGSTOP)
    manager.let_go()
    lock.take(JOB.id, 0).release()


def test_it_needs_a_prolog(scope: Path) -> None:
    assert exit_code_of(18) == 1
    assert not SOCKET.exists()


def test_it_needs_a_prolog_of_this_boot(scope: Path) -> None:
    saved().changed(boot="00000000-0000-0000-0000-000000000000")
    assert exit_code_of(17) == 1
    assert not SOCKET.exists()


def test_it_waits_for_the_prologs_lock(scope: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warden, "LOCK_TIMEOUT", 0.2)
    with lock.locked(JOB.id):
        assert exit_code_of(17) == 1


def test_the_signal_that_stops_it_needs_no_help(manager: Manager, agent: Peer, placeholder: Peer) -> None:
    """What it made is left to the Epilog, which finds it in the state."""
    tree = delegated(agent, placeholder)
    os.kill(manager.pid, signal.SIGTERM)
    assert ended(manager.pid)
    assert tree.exists()
    assert saved().tree == tree


def test_moves_are_seen_by_those_who_wait(scope: Path) -> None:
    """The stand-ins themselves: a cgroup says that its last process is gone."""
    place = leaf(scope, "job_17", "step_9", "task_0")
    with Peer(USER, place):
        pass
    await_event(place, "populated 0")


def test_on_a_full_disk_all_of_it_ends_as_well(
    scope: Path, agent: Peer, placeholder: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patched before the warden is forked; what it cannot write down it still knows."""

    def save(state: State) -> None:
        if state.usage or state.phase == Phase.ENDED:
            raise OSError(28, "No space left on device")
        real(state)

    real = State.save
    monkeypatch.setattr(State, "save", save)
    with Manager():
        tree = delegated(agent, placeholder)
        child = agent.do(forked)
        agent.do(Path.write_text, tree / "init/cgroup.procs", str(child))
        agent.kill()
        assert ended(child, 5)
        await_same(tree.exists, False)
        assert warden_protocol.call(SOCKET, warden_protocol.Usage(), 5)["cpu_seconds"] >= 0
