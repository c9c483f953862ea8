"""The warden at work: real processes of its job's owner and of others, real cgroups, a stand-in for systemd."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage import caller as callers
from moorage import delegation, lock, warden, wire
from moorage.caller import Caller as Identified
from moorage.caller import identify
from moorage.cgroup import Leaf, NoTask, leaf_of
from moorage.errors import MoorageError
from moorage.listener import Peer as Caller
from moorage.process import Process
from moorage.state import Phase
from support.cgroups import await_event, leaf, members
from support.node import JOB, LIMITS, OTHER, USER, Manager, node, prepared, saved
from support.peers import Peer, forked
from support.processes import ended

SOCKET = JOB.socket


@pytest.fixture
def scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with node(monkeypatch) as scope:
        prepared()
        yield scope


@pytest.fixture
def manager(scope: Path) -> Iterator[Manager]:
    with Manager() as manager:
        yield manager


@pytest.fixture
def tasks(scope: Path) -> tuple[Path, Path]:
    return leaf(scope, "job_17", "step_0", "task_0"), leaf(scope, "job_17", "step_0", "task_1")


@pytest.fixture
def agent(tasks: tuple[Path, Path]) -> Iterator[Peer]:
    with Peer(USER, tasks[0]) as agent:
        yield agent


@pytest.fixture
def placeholder(tasks: tuple[Path, Path]) -> Iterator[Peer]:
    with Peer(USER, tasks[1]) as placeholder:
        yield placeholder


def ask(verb: str, limit: float = 10.0) -> dict[str, object]:
    """For a Peer: unlike a lambda, it can be sent."""
    return wire.call(SOCKET, verb, limit)


def delegated(agent: Peer, placeholder: Peer) -> Path:
    placeholder.begin(ask, "lend")
    tree = Path(agent.do(ask, "delegate")["tree"])
    assert placeholder.result() == {"tree": str(tree)}
    return tree


def owners(directory: Path) -> dict[str, int]:
    return {".": directory.stat().st_uid} | {file.name: file.stat().st_uid for file in directory.iterdir()}


class TestDelegation:
    def test_the_tree_is_the_owners_and_its_limits_are_not(
        self, manager: Manager, agent: Peer, placeholder: Peer, tasks: tuple[Path, Path]
    ) -> None:
        tree = delegated(agent, placeholder)
        assert tree == tasks[1] / "k8s"
        given = {".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "memory.oom.group", "memory.reclaim"}
        for directory in (tree, tree / "init"):
            his = {name for name, uid in owners(directory).items() if uid == USER}
            assert his - {"init"} == given & (set(owners(directory)))
        assert (tree / "cgroup.max.depth").read_text() == f"{LIMITS.depth}\n"
        assert (tree / "cgroup.max.descendants").read_text() == f"{LIMITS.cgroups}\n"

    def test_above_the_tree_one_file_is_given_away(
        self, manager: Manager, agent: Peer, placeholder: Peer, tasks: tuple[Path, Path]
    ) -> None:
        tree = delegated(agent, placeholder)
        user = tree.parents[1]
        assert {name for name, uid in owners(user).items() if uid} == {"cgroup.procs"}
        for directory in (*tasks, *user.parents[:3]):
            assert {name for name, uid in owners(directory).items() if uid} <= {"k8s"}

    def test_the_placeholder_moves_to_the_agents_task_and_nobody_else_moves(
        self, manager: Manager, agent: Peer, placeholder: Peer, tasks: tuple[Path, Path]
    ) -> None:
        delegated(agent, placeholder)
        assert sorted(members(tasks[0])) == sorted([agent.pid, placeholder.pid])
        assert members(tasks[1]) == []

    def test_the_controllers_reach_the_containers(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        tree = delegated(agent, placeholder)
        wanted = set((tree.parents[5] / "cgroup.controllers").read_text().split())
        assert set((tree / "init/cgroup.controllers").read_text().split()) <= wanted
        assert (tree / "init/cgroup.controllers").read_text() == (tree / "cgroup.subtree_control").read_text()

    def test_the_owner_can_use_it(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        tree = delegated(agent, placeholder)
        child = agent.do(forked)
        agent.do(Path.write_text, tree / "init/cgroup.procs", str(child))
        assert members(tree / "init") == [child]
        agent.do(os.mkdir, tree / "container")
        agent.do(Path.write_text, tree / "container/cgroup.procs", str(child))
        assert members(tree / "container") == [child]

    @pytest.mark.parametrize("place", ["..", "../..", "../../../slurm"])
    def test_and_nothing_beside_it(self, manager: Manager, agent: Peer, placeholder: Peer, place: str) -> None:
        tree = delegated(agent, placeholder)
        with pytest.raises(PermissionError):
            agent.do(os.mkdir, tree / place / "mine")
        with pytest.raises(OSError, match=r"denied|busy"):
            agent.do(Path.write_text, tree / place / "cgroup.procs", str(agent.pid))

    @pytest.mark.parametrize("file", ["cgroup.max.depth", "cgroup.max.descendants", "cgroup.freeze", "cgroup.kill"])
    def test_nor_its_limits(self, manager: Manager, agent: Peer, placeholder: Peer, file: str) -> None:
        tree = delegated(agent, placeholder)
        with pytest.raises(PermissionError):
            agent.do(Path.write_text, tree / file, "1")

    def test_whichever_asks_first(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        agent.begin(ask, "delegate")
        assert placeholder.do(ask, "lend") == agent.result()

    def test_asking_twice_gets_the_same_answer(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        tree = delegated(agent, placeholder)
        assert agent.do(ask, "delegate") == placeholder.do(ask, "lend") == {"tree": str(tree)}

    def test_it_is_written_down(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        tree = delegated(agent, placeholder)
        state = saved()
        assert (state.phase, state.tree, state.agent) == (Phase.DELEGATED, tree, Process.of(agent.pid))
        assert state.owner == Process.of(manager.pid)


class TestRefusals:
    """Every way in that is none."""

    def refused(self, peer: Peer, verb: str, why: str) -> None:
        with pytest.raises(wire.Refused, match=why):
            peer.do(ask, verb)
        assert saved().tree is None

    @pytest.mark.parametrize("verb", wire.VERBS)
    def test_another_user_cannot_even_connect(self, manager: Manager, tasks: tuple[Path, Path], verb: str) -> None:
        with Peer(OTHER, tasks[0]) as other, pytest.raises(PermissionError):
            other.do(connect)

    @pytest.mark.parametrize("verb", wire.VERBS)
    def test_another_user_gets_no_answer_if_he_could(
        self, manager: Manager, tasks: tuple[Path, Path], verb: str
    ) -> None:
        SOCKET.chmod(0o666)
        with Peer(OTHER, tasks[0]) as other:
            self.refused(other, verb, "answers the owner of its job")

    def test_root_may_ask_what_was_used_and_nothing_else(
        self, manager: Manager, agent: Peer, placeholder: Peer
    ) -> None:
        with Peer(0) as root:
            for verb in ("lend", "delegate"):
                self.refused(root, verb, "only a task of this job")
            self.refused(root, "usage", "nothing has been delegated")
            delegated(agent, placeholder)
            assert set(root.do(ask, "usage")) == {"cpu_seconds", "memory_peak", "processes"}

    @pytest.mark.parametrize("verb", wire.VERBS)
    @pytest.mark.parametrize(
        "place",
        [
            "job_18/step_0/user/task_0",
            "job_17/step_extern/user/task_special",
            "job_17/step_0/slurm",
            "job_17/step_0/user/task_0/k8s/init",
        ],
    )
    def test_the_owner_from_elsewhere(self, manager: Manager, scope: Path, place: str, verb: str) -> None:
        (scope / place).mkdir(parents=True)
        with Peer(USER, scope / place) as stray:
            self.refused(stray, verb, "no task of this job")

    def test_the_owner_from_a_likeness_of_his_own(self, manager: Manager, scope: Path) -> None:
        likeness = scope.parent / "his/slurmstepd.scope/job_17/step_0/user/task_0"
        likeness.mkdir(parents=True)
        for directory in (likeness, *likeness.parents[:5]):
            os.chown(directory, USER, USER)
        with Peer(USER, likeness) as stray:
            self.refused(stray, "delegate", "not made by Slurm")

    def test_two_of_one_task(self, manager: Manager, agent: Peer, tasks: tuple[Path, Path]) -> None:
        with Peer(USER, tasks[0]) as twin:
            twin.begin(ask, "lend")
            self.refused(agent, "delegate", "no other task of this step has lent")

    def test_two_of_different_steps(self, manager: Manager, agent: Peer, scope: Path) -> None:
        with Peer(USER, leaf(scope, "job_17", "step_1", "task_1")) as stranger:
            stranger.begin(ask, "lend")
            self.refused(agent, "delegate", "no other task of this step has lent")

    def test_alone(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        started = time.monotonic()
        self.refused(placeholder, "lend", "no other task of this step has asked")
        assert LIMITS.lend_wait <= time.monotonic() - started < LIMITS.lend_wait + 2

    def test_a_placeholder_that_has_gone(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        placeholder.begin(ask, "lend")
        placeholder.kill()
        self.refused(agent, "delegate", "no other task of this step has lent")

    def test_a_placeholder_with_a_child(
        self, manager: Manager, agent: Peer, placeholder: Peer, tasks: tuple[Path, Path]
    ) -> None:
        placeholder.do(forked)
        placeholder.begin(ask, "lend")
        with pytest.raises(wire.Refused, match="must have no children"):
            agent.do(ask, "delegate")
        assert saved().phase == Phase.ENDED
        assert not (tasks[1] / "k8s").exists()

    def test_a_second_agent(self, manager: Manager, agent: Peer, placeholder: Peer, scope: Path) -> None:
        delegated(agent, placeholder)
        others = [leaf(scope, "job_17", "step_1", f"task_{number}") for number in range(2)]
        with Peer(USER, others[0]) as second, Peer(USER, others[1]) as lender:
            for peer, verb in ((second, "delegate"), (lender, "lend")):
                with pytest.raises(wire.Refused, match=f"has an agent already: process {agent.pid}"):
                    peer.do(ask, verb)

    def test_after_the_end(self, manager: Manager, agent: Peer, placeholder: Peer, tasks: tuple[Path, Path]) -> None:
        tree = delegated(agent, placeholder)
        agent.kill()
        await_gone(tree)
        with Peer(USER, tasks[0]) as late, pytest.raises(wire.Refused, match="has ended"):
            late.do(ask, "delegate")


def connect() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(os.fspath(SOCKET))


def await_gone(directory: Path, limit: float = 10.0) -> None:
    """There is no event for that; the kernel ends the poll of a file whose cgroup is removed."""
    end = time.monotonic() + limit
    while directory.exists() or saved().phase != Phase.ENDED:
        assert time.monotonic() < end, f"{directory} is still there"
        time.sleep(0.01)


class TestIdentity:
    """What the kernel noted of the caller may be a number that is another's by now."""

    def test_a_task(self, scope: Path, tasks: tuple[Path, Path], agent: Peer) -> None:
        assert identify(Caller(agent.pid, USER), JOB) == Identified(Process.of(agent.pid), Leaf(tasks[0]))

    @pytest.mark.parametrize("pid", [0, -1])
    def test_a_process_that_cannot_be_seen_from_here(self, scope: Path, pid: int) -> None:
        with pytest.raises(NoTask, match="only a task"):
            identify(Caller(pid, USER), JOB)

    def test_a_number_that_is_another_users_by_now(self, scope: Path, tasks: tuple[Path, Path]) -> None:
        with Peer(OTHER, tasks[0]) as other, pytest.raises(NoTask, match="not the owner's"):
            identify(Caller(other.pid, USER), JOB)

    def test_a_number_that_is_nobodys_by_now(self, scope: Path, agent: Peer) -> None:
        agent.kill()
        with pytest.raises(NoTask, match="has ended"):
            identify(Caller(agent.pid, USER), JOB)

    def test_a_process_that_ends_while_it_is_looked_at(
        self, scope: Path, agent: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def leaf_then_end(pid: int, names: frozenset[str]) -> Leaf:
            found = leaf_of(pid, names)
            monkeypatch.setattr(callers, "real_uid", lambda _: USER)
            agent.kill()
            return found

        monkeypatch.setattr(callers, "leaf_of", leaf_then_end)
        with pytest.raises(NoTask):
            identify(Caller(agent.pid, USER), JOB)


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
        assert wire.call(SOCKET, "usage", 5) == used.as_dict()

    def test_nobody_moves_in_again(self, agent: Peer, placeholder: Peer, tree: Path) -> None:
        """Until the end `user/cgroup.procs` is the owner's, and the placeholder still lives in there."""
        agent.kill()
        await_gone(tree)
        assert (tree.parents[1] / "cgroup.procs").stat().st_uid == 0


_KEPT: list[socket.socket] = []


def keep_connection() -> None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(os.fspath(SOCKET))
    _KEPT.append(connection)


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
        with pytest.raises(wire.Refused, match="has ended"):
            agent.do(ask, "delegate")

    def test_the_lock_is_free_once_the_unit_is_stopped(self, manager: Manager) -> None:
        manager.stop()
        lock.take(JOB.id, 0).release()


class TestPatience:
    def test_silent_callers_keep_nobody_waiting(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        """Nor do they ever hold more of the warden's descriptors than their share."""
        for _ in range(50):
            placeholder.do(keep_connection)
        assert len(descriptors(manager)) < 40
        with pytest.raises(wire.Refused, match="nothing has been delegated"):
            wire.call(SOCKET, "usage", 1)

    def test_descriptors_that_are_sent_along_are_not_kept(self, manager: Manager, agent: Peer) -> None:
        # The first answer may open the journal, for good.
        agent.do(send_descriptors)
        before = descriptors(manager)
        agent.do(send_descriptors)
        assert descriptors(manager) == before

    @pytest.mark.parametrize(
        "packet",
        [
            b"",
            b"\0",
            b"[",
            b"[" * 4096,
            b"{" * 5000,
            b"1" * 4096,
            b'{"verb": "plug"}',
            b'{"verb": ["lend"]}',
            b'{"verb": "usage", "job": 18}',
            b'{"VERB": "usage"}',
            b'"usage"',
            b"\xff\xfe",
            json.dumps({"verb": "usage" + " " * 4096}).encode(),
        ],
    )
    def test_what_is_no_request_is_refused(self, manager: Manager, agent: Peer, packet: bytes) -> None:
        answer = agent.do(exchange, packet)
        assert b"not understood" in answer or not packet
        assert Process.of(manager.pid).alive

    def test_a_second_request_ends_the_connection(self, manager: Manager, agent: Peer) -> None:
        assert b"one request a connection" in agent.do(exchange, wire.request("lend"), wire.request("lend"))


def descriptors(manager: Manager) -> list[str]:
    return sorted(entry.name for entry in Path(f"/proc/{manager.pid}/fd").iterdir())


def exchange(*packets: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(10)
        connection.connect(os.fspath(SOCKET))
        for packet in packets:
            connection.send(packet)
        return connection.recv(4096)


def send_descriptors() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(os.fspath(SOCKET))
        socket.send_fds(connection, [wire.request("usage")], [0, 1, 2])
        while connection.recv(4096):
            pass


def exit_code_of(job: int) -> int:
    """Of a warden that does not become ready."""
    pid = os.fork()
    if pid == 0:
        Manager(job).become_warden()
    if not ended(pid, 5):
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_it_needs_a_prolog(scope: Path) -> None:
    assert exit_code_of(18) == 1
    assert not SOCKET.exists()


def test_it_needs_a_prolog_of_this_boot(scope: Path) -> None:
    saved().changed(boot="00000000-0000-0000-0000-000000000000")
    assert exit_code_of(17) == 1
    assert not SOCKET.exists()


def test_it_waits_for_the_prologs_lock(scope: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warden, "LOCK_LIMIT", 0.2)
    with lock.locked(JOB.id):
        assert exit_code_of(17) == 1


class TestInMidDelegation:
    """Patched before the warden is forked, so it is its own delegation that ends so."""

    def test_what_may_exist_is_written_down_first(
        self, scope: Path, agent: Peer, placeholder: Peer, tasks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(delegation, "delegate", lambda *_: os._exit(1))
        with Manager():
            placeholder.begin(ask, "lend", 1)
            with pytest.raises(MoorageError):
                agent.do(ask, "delegate", 1)
        assert saved().tree == tasks[1] / "k8s"
        assert saved().phase == Phase.PREPARED

    def test_a_placeholder_that_ends_meanwhile(
        self, scope: Path, agent: Peer, placeholder: Peer, tasks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The number that was moved may have been another process's."""

        def delegate_and_end(agent: Leaf, lent: Leaf, lender: int, *rest: Any) -> None:  # noqa: ANN401
            real(agent, lent, lender, *rest)
            os.kill(lender, signal.SIGKILL)
            assert ended(lender)

        real = delegation.delegate
        monkeypatch.setattr(delegation, "delegate", delegate_and_end)
        with Manager():
            placeholder.begin(ask, "lend")
            with pytest.raises(wire.Refused, match="the task that lent its cgroup has ended"):
                agent.do(ask, "delegate")
        assert not (tasks[1] / "k8s").exists()
        assert saved().phase == Phase.ENDED

    def test_an_agent_that_ends_meanwhile(
        self, scope: Path, agent: Peer, placeholder: Peer, tasks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def delegate_and_end(*words: Any) -> None:  # noqa: ANN401
            real(*words)
            os.kill(agent.pid, signal.SIGKILL)

        real = delegation.delegate
        monkeypatch.setattr(delegation, "delegate", delegate_and_end)
        with Manager():
            agent.begin(ask, "delegate")
            placeholder.do(ask, "lend")
            await_gone(tasks[1] / "k8s")


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
