"""Whose the other end of a connection over the loopback is, with real sockets of real users."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from moorage.user.network import forward
from support.peers import Peer

OWN, OTHER = 54321, 54322
LIMIT = 10.0


class Door:
    """A port of a user's, in a process of his."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.kernel = forward.kernel()
        self.kept: list[socket.socket] = []

    def welcomes(self) -> bool:
        connection, _ = self.listener.accept()
        self.kept.append(connection)
        return forward.is_welcome(self.kernel, connection)


doors: list[Door] = []
callers: list[socket.socket] = []


def opened() -> int:
    doors.append(Door())
    return int(doors[-1].listener.getsockname()[1])


def welcomed() -> bool:
    return doors[-1].welcomes()


def call(port: int) -> None:
    callers.append(socket.create_connection(("127.0.0.1", port), LIMIT))


def leave(port: int) -> None:
    call(port)
    callers.pop().close()


@pytest.fixture
def port_and_keeper() -> Iterator[tuple[int, Peer]]:
    with Peer(OWN) as keeper:
        yield keeper.do(opened), keeper


@pytest.mark.parametrize(("who", "welcome"), [(OWN, True), (0, True), (OTHER, False)])
def test_only_the_user_himself_and_root_are_welcome(port_and_keeper: tuple[int, Peer], who: int, welcome: bool) -> None:
    port, keeper = port_and_keeper
    with Peer(who) as caller:
        caller.do(call, port)
        assert keeper.do(welcomed) is welcome


def test_who_has_left_is_nobody(port_and_keeper: tuple[int, Peer]) -> None:
    """The kernel calls what is left of such a connection root's."""
    port, keeper = port_and_keeper
    with Peer(OTHER) as caller:
        caller.do(leave, port)
        assert keeper.do(welcomed) is False


def test_of_several_callers_each_is_known(port_and_keeper: tuple[int, Peer]) -> None:
    port, keeper = port_and_keeper
    with ExitStack() as stack:
        who = [stack.enter_context(Peer(uid)) for uid in (OTHER, OWN, OTHER, OWN)]
        for caller in who:
            caller.do(call, port)
        assert [keeper.do(welcomed) for _ in who] == [False, True, False, True]


def test_a_kernel_that_cannot_tell_bars_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says of any connection that there is none such."""
    monkeypatch.setattr(forward, "_BY_FAMILY", 4711)
    opened()
    call(doors[-1].listener.getsockname()[1])
    assert welcomed()
