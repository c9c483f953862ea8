"""What the warden is told of a start: it believes the words and not the times, and forgets nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.common import phases, warden_protocol
from moorage.root.records import start_log
from support.callers import SOCKET, ask, exchange, tell
from support.node import JOB, Manager, saved
from support.peers import Peer


def words() -> list[str]:
    return [step.word for step in start_log.read(JOB.id).steps]


def test_an_agent_tells_how_far_it_came(manager: Manager, agent: Peer) -> None:
    before = start_log.now()
    for word in ("cgroup", "podman", "ready"):
        assert agent.do(tell, word) == {}
    assert words() == ["cgroup", "podman", "ready"]
    assert before <= start_log.read(JOB.id).steps[0].at + 0.01
    assert "start: the job is ready\n" in JOB.log.read_text()


def test_a_call_that_is_made_again_counts_once(manager: Manager, agent: Peer) -> None:
    for _ in range(3):
        assert agent.do(tell, "podman") == {}
    assert words() == ["podman"]


def test_a_warden_that_is_started_again_goes_on(manager: Manager, agent: Peer) -> None:
    agent.do(tell, "podman")
    manager.kill()
    manager.start()
    agent.do(tell, "ready")
    assert words() == ["podman", "ready"]


def test_a_cause_ends_no_line(manager: Manager, agent: Peer) -> None:
    agent.do(tell, "failed", 'a\nJOB_ID=1\x1b[2J"' + "x" * 1000)
    (step,) = start_log.read(JOB.id).steps
    assert step.cause.startswith('a JOB_ID=1\x1b[2J"x')
    assert len(step.cause) == phases.LONGEST_CAUSE
    (line,) = JOB.log.read_text().splitlines()
    assert "\x1b" not in line


@pytest.mark.parametrize("word", ["", "prolog", "x" * 1000, "READY"])
def test_other_words_are_refused(manager: Manager, agent: Peer, word: str) -> None:
    with pytest.raises(warden_protocol.Refused, match="no such step"):
        agent.do(tell, word)
    assert words() == []


@pytest.mark.parametrize(
    "packet",
    [
        b'{"verb": "tell", "word": 1}',
        b'{"verb": "tell", "word": ["podman"]}',
        b'{"verb": "tell", "word": "podman", "at": "1"}',
        b'{"verb": "usage", "word": "podman"}',
    ],
)
def test_other_forms_are_refused(manager: Manager, agent: Peer, packet: bytes) -> None:
    assert b"not understood" in agent.do(exchange, packet)
    assert words() == []


def test_nobody_fills_anything(manager: Manager, agent: Peer) -> None:
    for number in range(start_log.MOST):
        agent.do(tell, ("podman", "kind")[number % 2])
    with pytest.raises(warden_protocol.Refused, match="more has been told"):
        agent.do(tell, "ready")
    assert len(words()) == start_log.MOST


def test_root_is_not_a_task(manager: Manager) -> None:
    with Peer(0) as root, pytest.raises(warden_protocol.Refused, match="only a task of this job"):
        root.do(tell, "ready")
    assert words() == []


def test_a_full_run_directory_stops_nothing(manager: Manager, agent: Peer, placeholder: Peer) -> None:
    """Its user can fill it."""
    (JOB.run / start_log.NAME).mkdir()
    with pytest.raises(warden_protocol.Refused, match="directory"):
        agent.do(tell, "podman")
    placeholder.begin(ask, "lend")
    assert Path(str(agent.do(ask, "delegate")["tree"])) == saved().tree
    assert SOCKET.exists()
