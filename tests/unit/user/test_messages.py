"""Every message arrives as it was sent, and nothing else is taken for a message."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from moorage.user import messages
from moorage.user.channel import Receiver, Sender
from moorage.user.cluster.invitation import Invitation
from moorage.user.messages import (
    ClusterUp,
    Delegated,
    Down,
    DownRequested,
    Failed,
    Forward,
    Gateway,
    HolderCommand,
    Invited,
    Join,
    KeeperCommand,
    KeeperEvent,
    Log,
    Namespace,
    Note,
    PhaseBegun,
    Plugged,
    PlugWanted,
    Ready,
    Signalled,
    Step,
    Used,
    Without,
)

INVITATION = Invitation("https://10.89.0.2:6443", "an authority", "a token", "a certificate", "k" * 5000)
EVENTS: list[KeeperEvent] = [
    Step("0"),
    PhaseBegun("podman", "preparing Podman"),
    Ready(),
    Failed("no cgroup"),
    Log("kubelet", "one\ntwo"),
    Note("a note"),
    Signalled("USR1"),
    DownRequested(),
    Invited(INVITATION),
    ClusterUp("moorage-17", "https://127.0.0.1:1"),
    ClusterUp("moorage-17", "https://127.0.0.1:1", ("n2", "n3")),
    Used(1.5, 1 << 30, 9),
    PlugWanted("fabric"),
]
COMMANDS: list[KeeperCommand] = [
    Join(INVITATION),
    Without("n2"),
    Down(),
    Delegated("/sys/fs/cgroup/x"),
    Plugged("fabric"),
]
HOLDER_COMMANDS: list[HolderCommand] = [Gateway("100.96.0.2/30", "100.96.0.1"), Forward("10.89.0.2", 6443)]


def sent(message: dict[str, Any]) -> dict[str, Any]:
    lines: list[bytes] = []
    Sender(lines.append, "n1").send(message)
    (received,) = Receiver().receive(b"".join(lines))
    assert isinstance(received, dict)
    return received


def kinds(union: object) -> set[type]:
    return {kind for one in get_args(union) for kind in (get_args(one) or (one,))}


@pytest.mark.parametrize("event", EVENTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("node", ["", "n1"])
def test_events(event: KeeperEvent, node: str) -> None:
    received = sent(messages.encode_event(event, node))
    assert messages.decode_event(received) == event
    assert messages.sender(received) == (node or "?")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: type(one).__name__)
def test_commands(command: KeeperCommand) -> None:
    assert messages.decode_command(sent(messages.encode_command(command))) == command


@pytest.mark.parametrize("command", HOLDER_COMMANDS, ids=lambda one: type(one).__name__)
def test_commands_to_the_holder(command: HolderCommand) -> None:
    packet = json.dumps(messages.encode_command(command))
    assert messages.decode_holder_command(json.loads(packet)) == command


def test_the_event_of_the_holder() -> None:
    assert messages.decode_holder_event(messages.encode_event(Namespace())) == Namespace()
    assert messages.decode_holder_event({"event": "ready"}) is None


def test_every_message_is_tested() -> None:
    assert {type(one) for one in EVENTS} == kinds(KeeperEvent)
    assert {type(one) for one in COMMANDS} == kinds(KeeperCommand)
    assert {type(one) for one in HOLDER_COMMANDS} == kinds(HolderCommand)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"event": "of another release"},
        {"event": ["ready"]},
        {"event": "failed"},
        {"event": "failed", "cause": 1},
        {"event": "join", "server": "https://10.89.0.2:6443"},
        {"event": "join", **dict.fromkeys(("server", "authority", "token", "certificate", "key"), 1)},
        {"event": "cluster", "name": "c", "server": "s", "without": "n2"},
        {"event": "usage", "cpu_seconds": "1.5", "memory_peak": 1, "processes": 1},
        {"command": "down"},
    ],
)
def test_what_is_no_event(message: dict[str, Any]) -> None:
    assert messages.decode_event(message) is None


@pytest.mark.parametrize("message", [{}, {"event": "down"}, {"command": "join"}, {"command": "without", "node": 2}])
def test_what_is_no_command(message: dict[str, Any]) -> None:
    assert messages.decode_command(message) is None
    assert messages.decode_holder_command(message) is None


def test_an_older_agent_sends_no_word() -> None:
    assert messages.decode_event({"event": "phase", "text": "dancing"}) == PhaseBegun("other", "dancing")


def test_a_log_of_any_length_is_sent_in_pieces() -> None:
    text = "\\" * (3 * messages.LOG_PIECE + 1)
    pieces = [messages.decode_event(sent(messages.encode_event(one, "n1"))) for one in messages.logs("kubelet", text)]
    assert len(pieces) == 4
    assert "".join(one.text for one in pieces if isinstance(one, Log)) == text
