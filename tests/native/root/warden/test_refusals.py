"""Every way in that is none."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from moorage.common import warden_protocol
from moorage.linux.cgroup import Leaf, NoTask, leaf_of
from moorage.linux.process import Process
from moorage.root.state import Phase
from moorage.root.warden import delegation, listener, plugging, warden
from moorage.root.warden.listener import Caller, identify
from moorage.root.warden.listener import Peer as Connected
from support.callers import (
    SOCKET,
    ask,
    await_gone,
    await_same,
    be_called,
    connect,
    delegated,
    descriptors,
    exchange,
    keep_connection,
    send_descriptors,
)
from support.cgroups import leaf
from support.node import JOB, LIMITS, OTHER, USER, Manager, saved
from support.peers import Peer, forked


class TestRefusals:
    """Every way in that is none."""

    def refused(self, peer: Peer, verb: str, why: str) -> None:
        with pytest.raises(warden_protocol.Refused, match=why):
            peer.do(ask, verb)
        assert saved().tree is None

    @pytest.mark.parametrize("verb", warden_protocol.VERBS)
    def test_another_user_cannot_even_connect(self, manager: Manager, tasks: tuple[Path, Path], verb: str) -> None:
        with Peer(OTHER, tasks[0]) as other, pytest.raises(PermissionError):
            other.do(connect)

    @pytest.mark.parametrize("verb", warden_protocol.VERBS)
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
            for verb in ("lend", "delegate", "plug"):
                self.refused(root, verb, "only a task of this job")
            self.refused(root, "usage", "nothing has been delegated")
            delegated(agent, placeholder)
            assert set(root.do(ask, "usage")) == {"cpu_seconds", "memory_peak", "processes"}

    @pytest.mark.parametrize("verb", warden_protocol.VERBS)
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
        with pytest.raises(warden_protocol.Refused, match="must have no children"):
            agent.do(ask, "delegate")
        assert saved().phase == Phase.ENDED
        assert not (tasks[1] / "k8s").exists()

    def test_a_second_agent(self, manager: Manager, agent: Peer, placeholder: Peer, scope: Path) -> None:
        delegated(agent, placeholder)
        others = [leaf(scope, "job_17", "step_1", f"task_{number}") for number in range(2)]
        with Peer(USER, others[0]) as second, Peer(USER, others[1]) as lender:
            for peer, verb in ((second, "delegate"), (lender, "lend")):
                with pytest.raises(warden_protocol.Refused, match=f"has an agent already: process {agent.pid}"):
                    peer.do(ask, verb)

    def test_after_the_end(self, manager: Manager, agent: Peer, placeholder: Peer, tasks: tuple[Path, Path]) -> None:
        tree = delegated(agent, placeholder)
        agent.kill()
        await_gone(tree)
        with Peer(USER, tasks[0]) as late, pytest.raises(warden_protocol.Refused, match="has ended"):
            late.do(ask, "delegate")


class TestIdentity:
    """What the kernel noted of the caller may be a number that is another's by now."""

    def test_a_task(self, scope: Path, tasks: tuple[Path, Path], agent: Peer) -> None:
        assert identify(Connected(agent.pid, USER), JOB) == Caller(Process.of(agent.pid), Leaf(tasks[0]))

    @pytest.mark.parametrize("pid", [0, -1])
    def test_a_process_that_cannot_be_seen_from_here(self, scope: Path, pid: int) -> None:
        with pytest.raises(NoTask, match="only a task"):
            identify(Connected(pid, USER), JOB)

    def test_a_number_that_is_another_users_by_now(self, scope: Path, tasks: tuple[Path, Path]) -> None:
        with Peer(OTHER, tasks[0]) as other, pytest.raises(NoTask, match="not the owner's"):
            identify(Connected(other.pid, USER), JOB)

    def test_a_number_that_is_nobodys_by_now(self, scope: Path, agent: Peer) -> None:
        agent.kill()
        with pytest.raises(NoTask, match="has ended"):
            identify(Connected(agent.pid, USER), JOB)

    def test_a_process_that_ends_while_it_is_looked_at(
        self, scope: Path, agent: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def leaf_then_end(pid: int, names: frozenset[str]) -> Leaf:
            found = leaf_of(pid, names)
            monkeypatch.setattr(listener, "real_uid", lambda _: USER)
            agent.kill()
            return found

        monkeypatch.setattr(listener, "leaf_of", leaf_then_end)
        with pytest.raises(NoTask):
            identify(Connected(agent.pid, USER), JOB)


class TestPatience:
    def test_silent_callers_keep_nobody_waiting(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        """Nor do they ever hold more of the warden's descriptors than their share."""
        before = len(descriptors(manager))
        for _ in range(50):
            placeholder.do(keep_connection)
        assert len(descriptors(manager)) < before + 12
        with pytest.raises(warden_protocol.Refused, match="nothing has been delegated"):
            warden_protocol.call(SOCKET, warden_protocol.Usage(), 1)

    def test_descriptors_that_are_sent_along_are_not_kept(self, manager: Manager, agent: Peer) -> None:
        before = descriptors(manager)
        agent.do(send_descriptors, warden_protocol.encode(warden_protocol.Usage()), "/dev/null", "/dev/zero")
        # After its answer it still tells the journal.
        await_same(lambda: descriptors(manager), before)

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
            b'{"verb": "plug", "what": "kernel"}',
            b'{"verb": "plug", "what": ["fabric"]}',
            b'{"verb": "plug", "what": "fabric", "job": 18}',
            b'{"verb": "usage", "what": "fabric"}',
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
        lend = warden_protocol.encode(warden_protocol.Lend())
        assert b"one request a connection" in agent.do(exchange, lend, lend)


class TestUnforeseen:
    def test_a_caller_with_a_name_of_several_lines(self, manager: Manager, agent: Peer, placeholder: Peer) -> None:
        for peer in (agent, placeholder):
            peer.do(be_called, b"a\fUid:x")
            assert "a\fUid:x" in Path(f"/proc/{peer.pid}/status").read_text()
        assert delegated(agent, placeholder).exists()

    def test_an_error_nobody_foresaw_ends_no_warden(
        self, scope: Path, agent: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (warden, delegation, plugging):
            monkeypatch.setattr(module, "identify", lambda *_: [][0])
        with Manager() as manager:
            for verb in warden_protocol.VERBS:
                with pytest.raises(warden_protocol.Refused, match="IndexError"):
                    agent.do(ask, verb)
            assert Process.of(manager.pid).alive

    def test_the_journal_is_not_filled(
        self, capfd: pytest.CaptureFixture[str], scope: Path, agent: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listener, "REFUSALS", 60.0)
        with Manager():
            for verb in ("usage", "usage", "usage", "lend", "usage"):
                with pytest.raises(warden_protocol.Refused):
                    agent.do(ask, verb)
            with pytest.raises(warden_protocol.Refused):
                agent.do(ask, "usage")
        said = capfd.readouterr().err
        assert said.count("refused usage") == 1
