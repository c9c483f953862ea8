"""The agents as the job's task sees them: a stand-in for srun says what agents say."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.events import Watch
from moorage.user import messages
from moorage.user.channel import Receiver, Sender
from moorage.user.cluster.invitation import Invitation
from moorage.user.messages import ClusterUp, Down, DownRequested, Note, PhaseBegun, Signalled, Used, Without
from moorage.user.run import agents as module
from moorage.user.run.agents import MEANING, TRANSITIONS, Agents, Meaning, Need, NodeState
from support.processes import ended

LIMIT = 10.0
READY: dict[str, object] = {"node": "n1", "event": "ready"}


class Told(list[PhaseBegun | Note | Signalled | DownRequested]):
    def __call__(self, event: PhaseBegun | Note | Signalled | DownRequested) -> None:
        self.append(event)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def agents(told: Told) -> Iterator[Agents]:
    with Watch() as watch:
        agents = Agents(["n1"], watch, told)
        yield agents
        agents.close()


def saying(*messages: dict[str, object]) -> str:
    """Shell that prints these messages."""
    lines: list[bytes] = []
    sender = Sender(lines.append)
    for message in messages:
        sender.send(message)
    return "".join(f"printf %s {shlex.quote(line.decode())}; " for line in lines)


def start(agents: Agents, text: str) -> None:
    agents.start(["sh", "-c", text], {"PATH": os.environ["PATH"]})


@pytest.mark.commands("sh", "no-such-srun")
class TestOneNode:
    @pytest.mark.parametrize(
        ("message", "heard"),
        [
            ({"event": "phase", "word": "podman", "text": "preparing"}, PhaseBegun("podman", "preparing")),
            ({"event": "signal", "signal": "USR1"}, Signalled("USR1")),
            ({"event": "note", "text": "something"}, Note("n1: something")),
            ({"event": "down asked for"}, DownRequested()),
        ],
    )
    def test_what_is_to_be_shown(self, agents: Agents, told: Told, message: dict[str, object], heard: object) -> None:
        start(agents, saying({"node": "n1", **message}))
        assert agents.watch.until(lambda: agents.gone, Deadline(LIMIT))
        assert told == [heard]

    def test_what_is_for_the_record(self, agents: Agents) -> None:
        start(
            agents,
            saying(
                {"node": "n1", "event": "step", "id": "3"},
                {"node": "n1", "event": "log", "of": "kubelet", "text": "one "},
                {"node": "n1", "event": "log", "of": "kubelet", "text": "two"},
                {"node": "n1", "event": "log", "of": "kind", "text": "three"},
                {
                    "node": "n1",
                    "event": "cluster",
                    "name": "moorage-17",
                    "server": "https://127.0.0.1:1",
                    "without": [],
                },
                {"node": "n1", "event": "usage", "cpu_seconds": 1.5, "memory_peak": 1, "processes": 2},
                {"node": "n1", "event": "of another release"},
                {"node": "of another job", "event": "ready"},
            )
            + "echo noise; echo worse >&2",
        )
        assert agents.watch.until(lambda: agents.gone, Deadline(LIMIT))
        assert agents.record.step == "3"
        assert agents.record.logs == {"kubelet on n1": "one two", "kind on n1": "three"}
        assert agents.record.cluster == ClusterUp("moorage-17", "https://127.0.0.1:1")
        assert agents.record.usage == [Used(1.5, 1, 2)]
        assert {"noise", "worse"} < set(agents.noise)
        assert [line for line in agents.noise if "of another" in line] == [
            "{'node': 'n1', 'event': 'of another release'}",
            "{'node': 'of another job', 'event': 'ready'}",
        ]

    @pytest.mark.parametrize(
        ("text", "failure"),
        [
            (saying({"node": "n1", "event": "failed", "cause": "no cgroup"}), "no cgroup"),
            ("echo 'srun: error: nope' >&2; exit 1", "the step of the agents has ended: srun: error: nope [M-JOB-5]"),
            ("exit 0", "the step of the agents has ended [M-JOB-5]"),
        ],
    )
    def test_failure(self, agents: Agents, text: str, failure: str) -> None:
        start(agents, text)
        assert agents.watch.until(lambda: agents.gone, Deadline(LIMIT))
        assert agents.failure == failure

    def test_the_first_cause_is_the_cause(self, agents: Agents) -> None:
        failed = {"node": "n1", "event": "failed"}
        start(agents, saying({**failed, "cause": "first"}, {**failed, "cause": "second"}))
        assert agents.watch.until(lambda: agents.gone, Deadline(LIMIT))
        assert agents.failure == "first"

    def test_no_srun(self, agents: Agents) -> None:
        with pytest.raises(MoorageError, match="no-such-srun cannot be started"):
            agents.start(["no-such-srun"], {})

    def test_streams_may_end_before_srun_does(self, agents: Agents) -> None:
        start(agents, "exec >&- 2>&-; sleep 1")
        began = time.monotonic()
        assert agents.watch.until(lambda: agents.gone, Deadline(LIMIT))
        assert time.monotonic() - began < LIMIT / 2

    def test_told_to_tear_down_they_end(self, agents: Agents) -> None:
        start(agents, "read -r command; case $command in *down*) exit 0;; esac; sleep 600")
        assert agents.tear_down(LIMIT)

    def test_who_heeds_only_the_end_of_the_input_ends_too(self, agents: Agents) -> None:
        start(agents, "cat >/dev/null")
        began = time.monotonic()
        assert not agents.tear_down(0.5)
        assert time.monotonic() - began < LIMIT
        assert agents.gone

    def test_who_heeds_nothing_is_killed(self, agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "CLOSING", 0.5)
        start(agents, "exec sleep 600")
        assert agents.process
        pid = agents.process.pid
        assert not agents.tear_down(0.5)
        assert ended(pid)

    def test_nothing_is_left_open(self, agents: Agents) -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        start(agents, "exit 0")
        agents.tear_down(LIMIT)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


CLUSTER: dict[str, object] = {"node": "n1", "event": "cluster", "name": "c", "server": "s", "without": []}


def ready(node: str) -> dict[str, object]:
    return {"node": node, "event": "ready"}


def failed(node: str) -> dict[str, object]:
    return {"node": node, "event": "failed", "cause": "no cgroup"}


@pytest.mark.commands("sh")
class TestSeveralNodes:
    @pytest.fixture
    def agents(self, told: Told) -> Iterator[Agents]:
        with Watch() as watch:
            agents = Agents(["n1", "n2", "n3"], watch, told, "any")
            yield agents
            agents.close()

    @pytest.mark.parametrize(
        ("require", "first", "others", "failure"),
        [
            ("all", "ready", "failed", "n2: no cgroup"),
            ("any", "ready", "failed", ""),
            ("any", "failed", "ready", "n1: no cgroup"),
        ],
    )
    def test_who_is_required(self, agents: Agents, require: str, first: str, others: str, failure: str) -> None:
        agents.require = require
        said = {"ready": lambda node: {"node": node, "event": "ready"}, "failed": failed}
        start(agents, saying(said[first]("n1"), said[others]("n2"), said[others]("n3")) + "cat")
        settled = {NodeState.READY, NodeState.FAILED}
        assert agents.watch.until(lambda: set(agents.states.values()) == settled, Deadline(LIMIT))
        assert agents.failure == failure
        assert agents.ready is not bool(failure)

    def test_the_first_of_a_cluster_has_waited_for_the_others(self, agents: Agents) -> None:
        start(agents, saying(ready("n2"), CLUSTER) + "read _; " + saying(READY) + "cat")
        assert agents.watch.until(lambda: bool(agents.record.cluster), Deadline(LIMIT))
        assert not agents.ready
        agents.command(Down())
        assert agents.watch.until(lambda: agents.ready, Deadline(LIMIT))

    def test_each_loss_is_told_once(self, agents: Agents) -> None:
        start(agents, saying(failed("n2")) + "read _; read _; " + saying(failed("n3")) + "cat")
        assert agents.watch.until(lambda: agents.states["n2"] is NodeState.FAILED, Deadline(LIMIT))
        assert agents.take_losses() == ["n2: no cgroup"]
        agents.command(Down())
        assert agents.watch.until(lambda: agents.states["n3"] is NodeState.FAILED, Deadline(LIMIT))
        assert agents.take_losses() == ["n3: no cgroup"]
        assert agents.take_losses() == []

    def test_a_node_that_slurm_gives_up_is_lost_and_the_step_is_not(self, agents: Agents) -> None:
        start(agents, saying(READY) + "echo 'srun: error: Node failure on n[2-3]' >&2; cat")
        assert agents.watch.until(lambda: agents.ready, Deadline(LIMIT))
        assert not agents.gone
        assert not agents.failure
        assert agents.take_losses() == [
            f"{node}: the node has failed, as Slurm says [M-JOB-2]" for node in ("n2", "n3")
        ]

    @pytest.mark.parametrize("where", ["n[2-3]: tasks 1-2", "n[2,3]: tasks 1,2"])
    def test_nodes_whose_agents_are_killed_are_lost_and_the_step_is_not(self, agents: Agents, where: str) -> None:
        start(agents, saying(READY) + f"echo 'srun: error: {where}: Killed' >&2; cat")
        assert agents.watch.until(lambda: agents.ready, Deadline(LIMIT))
        assert not agents.gone
        assert agents.take_losses() == [
            f"{node}: its agent was ended, as Slurm says: Killed [M-JOB-3]" for node in ("n2", "n3")
        ]

    def test_the_last_report_of_an_agent_that_has_ended_counts(self, agents: Agents) -> None:
        exited = "echo 'srun: error: n[2-3]: tasks 1-2: Exited with exit code 2' >&2; read _; "
        start(agents, saying(READY) + exited + saying(failed("n3")) + "cat")
        assert agents.watch.until(lambda: bool(agents.exited_unheard), Deadline(LIMIT))
        assert agents.exited_unheard == dict.fromkeys(("n2", "n3"), "Exited with exit code 2")
        agents.command(Down())
        assert agents.watch.until(lambda: len(agents.exited_unheard) == 1, Deadline(LIMIT))
        agents.fail_exited()
        why = "its agent has ended without a word, as Slurm says: Exited with exit code 2 [M-JOB-4]"
        assert sorted(agents.take_losses()) == [f"n2: {why}", "n3: no cgroup"]
        assert agents.exited_unheard == {}

    @pytest.mark.parametrize(
        "line",
        [
            "Node failure on n2",
            "srun: error: Node failure on [",
            "srun: error: n2",
            "srun: error: n[: task 1: Killed",
            "srun: error: n2: task 1: Exited with exit code 1",
        ],
    )
    def test_other_words_are_just_words(self, agents: Agents, line: str) -> None:
        start(agents, f"echo '{line}' >&2")
        assert agents.watch.until(lambda: agents.gone, Deadline(LIMIT))
        assert agents.take_losses() == []

    def test_an_invitation_goes_to_all(self, agents: Agents, tmp_path: Path) -> None:
        invitation = Invitation("https://10.89.0.2:6443", "an authority", "a token", "a certificate", "k" * 5000)
        event = messages.encode_event(messages.Invited(invitation), "n1")
        start(agents, saying(event) + f"head -n 13 >{tmp_path}/heard")
        assert agents.watch.until(lambda: agents.gone, Deadline(LIMIT))
        (heard,) = Receiver().receive((tmp_path / "heard").read_bytes())
        assert isinstance(heard, dict)
        assert messages.decode_command(heard) == messages.Join(invitation)
        # There are keys in it.
        assert not [line for line in agents.noise if "kkk" in line]

    def test_all_are_told_of_a_node_that_will_not_join(self, agents: Agents, tmp_path: Path) -> None:
        start(agents, saying(failed("n2")) + f"head -n 1 >{tmp_path}/heard")
        assert agents.watch.until(lambda: agents.gone, Deadline(LIMIT))
        (heard,) = Receiver().receive((tmp_path / "heard").read_bytes())
        assert isinstance(heard, dict)
        assert messages.decode_command(heard) == Without("n2")


PREPARING = {"event": "phase", "word": "podman", "text": "preparing"}


@pytest.mark.commands("sh")
class TestStates:
    """What three nodes report, one after the other, and what each state means then."""

    @pytest.mark.parametrize(
        ("said", "states"),
        [
            ([], "UNHEARD UNHEARD UNHEARD"),
            ([{"node": "n2", **PREPARING}], "UNHEARD STARTING UNHEARD"),
            ([{"node": "n2", **PREPARING}, ready("n2")], "UNHEARD READY UNHEARD"),
            ([failed("n2")], "UNHEARD FAILED UNHEARD"),
            ([ready("n2"), failed("n2")], "UNHEARD LOST UNHEARD"),
            # What comes too late changes nothing.
            ([ready("n2"), {"node": "n2", **PREPARING}], "UNHEARD READY UNHEARD"),
            ([failed("n2"), ready("n2")], "UNHEARD FAILED UNHEARD"),
            ([ready("n2"), failed("n2"), ready("n2")], "UNHEARD LOST UNHEARD"),
            # The first node of a cluster gives a node up; the node may report after all.
            ([{**CLUSTER, "without": ["n2", "n3"]}, ready("n1")], "READY ABSENT ABSENT"),
            ([ready("n2"), {**CLUSTER, "without": ["n2", "n3"]}], "UNHEARD READY ABSENT"),
            ([{**CLUSTER, "without": ["n2", "n3"]}, ready("n2"), failed("n3")], "UNHEARD READY FAILED"),
        ],
    )
    def test_transitions(self, told: Told, said: list[dict[str, object]], states: str) -> None:
        with Watch() as watch:
            agents = Agents(["n1", "n2", "n3"], watch, told, "any")
            start(agents, saying(*said))
            assert watch.until(lambda: agents.gone, Deadline(LIMIT))
            agents.close()
        assert " ".join(state.name for state in agents.states.values()) == states

    @pytest.mark.parametrize(
        ("require", "said", "usable", "settled", "ready_now"),
        [
            ("all", [], False, False, False),
            ("all", [ready("n1"), ready("n2")], False, False, False),
            ("all", [ready("n1"), ready("n2"), ready("n3")], True, True, True),
            ("any", [ready("n2"), ready("n3")], False, False, False),
            ("any", [ready("n1")], True, False, False),
            ("any", [ready("n1"), failed("n2"), ready("n3")], True, True, True),
            ("any", [ready("n1"), failed("n2"), {"node": "n3", **PREPARING}], True, False, False),
            ("any", [CLUSTER, ready("n1"), {"node": "n3", **PREPARING}], True, False, True),
            ("any", [{**CLUSTER, "without": ["n2", "n3"]}, ready("n1")], True, True, True),
            ("all", [CLUSTER, ready("n1")], False, False, False),
        ],
    )
    def test_what_follows_for_the_start(
        self,
        told: Told,
        require: str,
        said: list[dict[str, object]],
        usable: bool,
        settled: bool,
        ready_now: bool,
    ) -> None:
        with Watch() as watch:
            agents = Agents(["n1", "n2", "n3"], watch, told, require)
            start(agents, saying(*said) + "printf '\\n'; echo done; cat")
            assert watch.until(lambda: "done" in agents.noise, Deadline(LIMIT))
            assert (agents.usable, agents.settled, agents.ready) == (usable, settled, ready_now)
            agents.close()

    def test_every_state_has_its_line_in_the_tables(self) -> None:
        assert set(TRANSITIONS) == set(MEANING) == set(NodeState)
        assert all(set(line) == set(Need) for line in MEANING.values())
        # No state without a way out makes a start wait for ever.
        final = [state for state, following in TRANSITIONS.items() if not following]
        assert [state for state in final if Meaning.WAIT in MEANING[state].values()] == []
