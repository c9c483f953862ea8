"""What the owner of a job gets, and what he does not."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from moorage.common import warden_protocol
from moorage.common.errors import MoorageError
from moorage.linux.process import Process
from moorage.root.state import Phase
from moorage.root.warden import delegation
from support.callers import (
    ask,
    await_gone,
    delegated,
)
from support.cgroups import members
from support.node import LIMITS, USER, Manager, saved
from support.peers import Peer, forked
from support.processes import ended


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

        def put_and_end(file: Path, value: object) -> None:
            real(file, value)
            if value == placeholder.pid:
                os.kill(placeholder.pid, signal.SIGKILL)
                assert ended(placeholder.pid)

        real = vars(delegation)["put"]
        monkeypatch.setattr(delegation, "put", put_and_end)
        with Manager():
            placeholder.begin(ask, "lend")
            with pytest.raises(warden_protocol.Refused, match="the task that lent its cgroup has ended"):
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
