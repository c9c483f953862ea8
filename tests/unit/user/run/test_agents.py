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
from moorage.user.channel import Ear, Mouth
from moorage.user.run.agents import Crew
from support.processes import ended

LIMIT = 10.0
READY: dict[str, object] = {"node": "n1", "event": "ready"}


class Told(list[tuple[str, str]]):
    def __call__(self, kind: str, text: str) -> None:
        self.append((kind, text))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def crew(told: Told) -> Iterator[Crew]:
    with Watch() as watch:
        crew = Crew(1, watch, told)
        yield crew
        crew.close()


def saying(*messages: dict[str, object]) -> str:
    """Shell that prints these messages."""
    lines: list[bytes] = []
    mouth = Mouth(lines.append)
    for message in messages:
        mouth.say(message)
    return "".join(f"printf %s {shlex.quote(line.decode())}; " for line in lines)


def start(crew: Crew, text: str) -> None:
    crew.start(["sh", "-c", text], {"PATH": os.environ["PATH"]})


@pytest.mark.commands("sh", "no-such-srun")
class TestCrew:
    def test_ready_once_every_node_is(self, crew: Crew) -> None:
        crew.nodes = 2
        start(
            crew,
            saying({"node": "n1", "event": "ready"}) + "read _; " + saying({"node": "n2", "event": "ready"}) + "cat",
        )
        assert crew.watch.until(lambda: bool(crew.words.ready), Deadline(LIMIT))
        assert not crew.ready
        assert not crew.failure
        crew.command("next")
        assert crew.watch.until(lambda: crew.ready, Deadline(LIMIT))

    @pytest.mark.parametrize(
        ("message", "heard"),
        [
            ({"event": "phase", "text": "preparing"}, ("phase", "preparing")),
            ({"event": "signal", "signal": "USR1"}, ("signal", "USR1")),
            ({"event": "note", "text": "something"}, ("note", "n1: something")),
        ],
    )
    def test_what_is_to_be_shown(
        self, crew: Crew, told: Told, message: dict[str, object], heard: tuple[str, str]
    ) -> None:
        start(crew, saying({"node": "n1", **message}))
        assert crew.watch.until(lambda: crew.gone, Deadline(LIMIT))
        assert told == [heard]

    def test_what_is_for_the_record(self, crew: Crew) -> None:
        start(
            crew,
            saying(
                {"node": "n1", "event": "step", "id": "3"},
                {"node": "n1", "event": "log", "of": "kubelet", "text": "one "},
                {"node": "n1", "event": "log", "of": "kubelet", "text": "two"},
                {"node": "n1", "event": "log", "of": "kind", "text": "three"},
                {"node": "n1", "event": "cluster", "name": "moorage-17", "server": "https://127.0.0.1:1"},
                {"node": "n1", "event": "usage", "cpu_seconds": 1.5},
                {"node": "n1", "event": "down asked for"},
                {"node": "n1", "event": "of another release"},
            )
            + "echo noise; echo worse >&2",
        )
        assert crew.watch.until(lambda: crew.gone, Deadline(LIMIT))
        assert crew.words.step == "3"
        assert crew.words.logs == {"kubelet on n1": "one two", "kind on n1": "three"}
        assert crew.words.cluster == {"name": "moorage-17", "server": "https://127.0.0.1:1"}
        assert crew.words.usage["n1"]["cpu_seconds"] == 1.5
        assert crew.words.down_asked_for
        assert {"noise", "worse"} < set(crew.noise)
        assert any("another release" in line for line in crew.noise)

    @pytest.mark.parametrize(
        ("nodes", "text", "failure"),
        [
            (1, saying({"node": "n1", "event": "failed", "cause": "no cgroup"}), "no cgroup"),
            (2, saying({"node": "n1", "event": "failed", "cause": "no cgroup"}), "n1: no cgroup"),
            (1, "echo 'srun: error: nope' >&2; exit 1", "the step of the agents has ended: srun: error: nope"),
            (1, "exit 0", "the step of the agents has ended"),
        ],
    )
    def test_failure(self, crew: Crew, nodes: int, text: str, failure: str) -> None:
        crew.nodes = nodes
        start(crew, text)
        assert crew.watch.until(lambda: crew.gone, Deadline(LIMIT))
        assert crew.failure == failure

    def test_the_first_cause_is_the_cause(self, crew: Crew) -> None:
        failed = {"node": "n1", "event": "failed"}
        start(crew, saying({**failed, "cause": "first"}, {**failed, "cause": "second"}))
        assert crew.watch.until(lambda: crew.gone, Deadline(LIMIT))
        assert crew.failure == "first"

    def test_no_srun(self, crew: Crew) -> None:
        with pytest.raises(MoorageError, match="no-such-srun cannot be started"):
            crew.start(["no-such-srun"], {})

    def test_streams_may_end_before_srun_does(self, crew: Crew) -> None:
        start(crew, "exec >&- 2>&-; sleep 1")
        began = time.monotonic()
        assert crew.watch.until(lambda: crew.gone, Deadline(LIMIT))
        assert time.monotonic() - began < LIMIT / 2

    def test_dismissed_they_end(self, crew: Crew) -> None:
        start(crew, "read -r command; case $command in *down*) exit 0;; esac; sleep 600")
        assert crew.dismiss(LIMIT)

    def test_who_heeds_only_the_end_of_the_input_ends_too(self, crew: Crew) -> None:
        start(crew, "cat >/dev/null")
        began = time.monotonic()
        assert not crew.dismiss(0.5)
        assert time.monotonic() - began < LIMIT
        assert crew.gone

    def test_who_heeds_nothing_is_killed(self, crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("moorage.user.run.agents.LEAVING", 0.5)
        start(crew, "exec sleep 600")
        assert crew.process
        pid = crew.process.pid
        assert not crew.dismiss(0.5)
        assert ended(pid)

    def test_nothing_is_left_open(self, crew: Crew) -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        start(crew, "exit 0")
        crew.dismiss(LIMIT)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def failed(node: str) -> dict[str, object]:
    return {"node": node, "event": "failed", "cause": "no cgroup"}


@pytest.mark.commands("sh")
class TestSeveralNodes:
    @pytest.fixture
    def crew(self, told: Told) -> Iterator[Crew]:
        with Watch() as watch:
            crew = Crew(3, watch, told, "n1", "any")
            yield crew
            crew.close()

    @pytest.mark.parametrize(
        ("require", "first", "others", "failure"),
        [
            ("all", "ready", "failed", "n2: no cgroup"),
            ("any", "ready", "failed", ""),
            ("any", "failed", "ready", "n1: no cgroup"),
        ],
    )
    def test_who_is_required(self, crew: Crew, require: str, first: str, others: str, failure: str) -> None:
        crew.require = require
        said = {"ready": lambda node: {"node": node, "event": "ready"}, "failed": failed}
        start(crew, saying(said[first]("n1"), said[others]("n2"), said[others]("n3")) + "cat")
        settled = crew.words
        assert crew.watch.until(lambda: len(settled.ready | settled.failures.keys()) == 3, Deadline(LIMIT))
        assert crew.failure == failure
        assert crew.ready is not bool(failure)

    def test_the_first_of_a_cluster_has_waited_for_the_others(self, crew: Crew) -> None:
        cluster: dict[str, object] = {"node": "n1", "event": "cluster", "name": "c", "server": "s"}
        start(crew, saying({"node": "n2", "event": "ready"}, cluster) + "read _; " + saying(READY) + "cat")
        assert crew.watch.until(lambda: bool(crew.words.cluster), Deadline(LIMIT))
        assert not crew.ready
        crew.command("next")
        assert crew.watch.until(lambda: crew.ready, Deadline(LIMIT))

    def test_each_loss_is_told_once(self, crew: Crew) -> None:
        start(crew, saying(failed("n2")) + "read _; read _; " + saying(failed("n3")) + "cat")
        assert crew.watch.until(lambda: bool(crew.words.failures), Deadline(LIMIT))
        assert crew.losses() == ["n2: no cgroup"]
        crew.command("next")
        assert crew.watch.until(lambda: len(crew.words.failures) == 2, Deadline(LIMIT))
        assert crew.losses() == ["n3: no cgroup"]
        assert crew.losses() == []

    def test_a_node_that_slurm_gives_up_is_lost_and_the_step_is_not(self, crew: Crew) -> None:
        start(crew, saying(READY) + "echo 'srun: error: Node failure on n[2-3]' >&2; cat")
        assert crew.watch.until(lambda: crew.ready, Deadline(LIMIT))
        assert not crew.gone
        assert not crew.failure
        assert crew.losses() == [f"{node}: the node has failed, as Slurm says" for node in ("n2", "n3")]

    @pytest.mark.parametrize("where", ["n[2-3]: tasks 1-2", "n[2,3]: tasks 1,2"])
    def test_nodes_whose_agents_are_killed_are_lost_and_the_step_is_not(self, crew: Crew, where: str) -> None:
        start(crew, saying(READY) + f"echo 'srun: error: {where}: Killed' >&2; cat")
        assert crew.watch.until(lambda: crew.ready, Deadline(LIMIT))
        assert not crew.gone
        assert crew.losses() == [f"{node}: its agent was ended, as Slurm says: Killed" for node in ("n2", "n3")]

    def test_who_has_ended_is_mute_until_his_last_words_are_heard(self, crew: Crew) -> None:
        exited = "echo 'srun: error: n[2-3]: tasks 1-2: Exited with exit code 2' >&2; read _; "
        start(crew, saying(READY) + exited + saying(failed("n3")) + "cat")
        assert crew.watch.until(lambda: bool(crew.mute), Deadline(LIMIT))
        assert crew.mute == dict.fromkeys(("n2", "n3"), "Exited with exit code 2")
        crew.command("next")
        assert crew.watch.until(lambda: len(crew.mute) == 1, Deadline(LIMIT))
        crew.lose_mute()
        why = "its agent has ended without a word, as Slurm says: Exited with exit code 2"
        assert sorted(crew.losses()) == [f"n2: {why}", "n3: no cgroup"]
        assert crew.mute == {}

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
    def test_other_words_are_just_words(self, crew: Crew, line: str) -> None:
        start(crew, f"echo '{line}' >&2")
        assert crew.watch.until(lambda: crew.gone, Deadline(LIMIT))
        assert crew.words.failures == {}

    def test_an_invitation_goes_to_all(self, crew: Crew, tmp_path: Path) -> None:
        invitation = {"server": "https://10.89.0.2:6443", "key": "k" * 5000}
        start(crew, saying({"node": "n1", "event": "join", **invitation}) + f"head -n 13 >{tmp_path}/heard")
        assert crew.watch.until(lambda: crew.gone, Deadline(LIMIT))
        assert list(Ear().hear((tmp_path / "heard").read_bytes())) == [{"command": "join", **invitation}]
        # There are keys in it.
        assert not [line for line in crew.noise if "kkk" in line]

    def test_who_will_not_come_is_told_to_all(self, crew: Crew, tmp_path: Path) -> None:
        start(crew, saying(failed("n2")) + f"head -n 1 >{tmp_path}/heard")
        assert crew.watch.until(lambda: crew.gone, Deadline(LIMIT))
        assert list(Ear().hear((tmp_path / "heard").read_bytes())) == [{"command": "without", "node": "n2"}]
