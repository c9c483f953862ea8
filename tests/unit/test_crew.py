"""The agents as the job's task sees them: a stand-in for srun says what agents say."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.channel import Mouth
from moorage.crew import Crew
from moorage.deadline import Deadline
from moorage.errors import MoorageError
from moorage.watch import Watch
from support.processes import ended

LIMIT = 10.0


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
        monkeypatch.setattr("moorage.crew.LEAVING", 0.5)
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
