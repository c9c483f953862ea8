from __future__ import annotations

import os
import selectors
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from moorage.common import warden_protocol
from moorage.common.warden_protocol import Lend, Plug, Usage
from moorage.root.warden import listener
from moorage.root.warden.listener import MOST_PER_PEER, Connection, Listener, bound

HERE = os.getuid()


class Host:
    """Serves the connections of this very process, turn by turn."""

    def __init__(self, path: Path, admitted: tuple[int, ...]) -> None:
        self.path = path
        self.events = selectors.DefaultSelector()
        self.served: list[tuple[Connection, warden_protocol.Request]] = []
        self.listener = Listener(bound(path, HERE), self.events, admitted, lambda *call: self.served.append(call))
        self.callers: list[socket.socket] = []

    def caller(self) -> socket.socket:
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        caller.connect(str(self.path))
        caller.settimeout(1)
        self.callers.append(caller)
        return caller

    def turn(self, patience: float = 0) -> None:
        for _ in range(3):
            for key, _ in self.events.select(patience):
                key.data()
            self.listener.expire()

    def until_all_are_answered(self, limit: float = 5) -> float:
        """How long that took."""
        started = time.monotonic()
        while self.listener.connections:
            assert time.monotonic() - started < limit
            self.turn(min(self.listener.next_deadline or 0, limit))
        return time.monotonic() - started

    def close(self) -> None:
        for connection in self.listener.connections:
            connection.stream.close()
        for caller in (*self.callers, self.listener.socket):
            caller.close()
        self.events.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with closing(Host(tmp_path / "s", (HERE,))) as host:
        yield host


def test_a_request_is_served(host: Host) -> None:
    caller = host.caller()
    caller.send(warden_protocol.encode(Usage()))
    host.turn()
    ((connection, request),) = host.served
    assert request == Usage()
    assert (connection.peer.pid, connection.peer.uid) == (os.getpid(), HERE)
    host.listener.answer(connection, warden_protocol.ok({"a": 1}))
    assert warden_protocol.outcome(caller.recv(4096)) == {"a": 1}
    assert caller.recv(4096) == b""


def test_what_comes_with_a_descriptor_is_left_to_another_process(host: Host) -> None:
    """And then it is heard no more here, whatever else it sends, until its time is up."""

    def leave(connection: Connection, request: warden_protocol.Request) -> None:
        host.served.append((connection, request))
        host.listener.leave(connection)
        connection.wait(0.1, "nobody came")

    host.listener.serve = leave
    caller = host.caller()
    packet = warden_protocol.encode(Plug("fabric"))
    for _ in range(2):
        caller.send(packet)
    host.turn()
    ((connection, request),) = host.served
    assert request == Plug("fabric")
    assert connection.stream.recv(4096) == packet
    host.until_all_are_answered()
    with pytest.raises(warden_protocol.Refused, match="nobody came"):
        warden_protocol.outcome(caller.recv(4096))


def test_who_is_not_admitted_is_told_and_not_kept(tmp_path: Path) -> None:
    with closing(Host(tmp_path / "s", ())) as host:
        caller = host.caller()
        caller.send(warden_protocol.encode(Usage()))
        host.turn()
        with pytest.raises(warden_protocol.Refused, match="owner of its job"):
            warden_protocol.outcome(caller.recv(4096))
        assert (host.served, host.listener.connections) == ([], [])


def test_one_caller_has_so_many_connections_and_no_more(host: Host) -> None:
    callers = [host.caller() for _ in range(MOST_PER_PEER + 1)]
    for _ in callers:
        host.turn()
    assert len(host.listener.connections) == MOST_PER_PEER
    with pytest.raises(warden_protocol.Refused, match="too many connections"):
        warden_protocol.outcome(callers[-1].recv(4096))
    callers[0].close()
    host.turn()
    callers.append(host.caller())
    host.turn()
    callers[-1].send(warden_protocol.encode(Usage()))
    host.turn()
    assert len(host.served) == 1


def test_who_says_nothing_is_answered_in_the_end(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_TIMEOUT", 0.2)
    assert [host.listener.next_deadline] == [None]
    caller = host.caller()
    host.turn()
    assert 0 < (host.listener.next_deadline or 0) <= 0.2
    assert 0.1 < host.until_all_are_answered() < 1
    with pytest.raises(warden_protocol.Refused, match="no request came"):
        warden_protocol.outcome(caller.recv(4096))


def test_who_has_to_wait_is_answered_in_the_end(host: Host) -> None:
    caller = host.caller()
    caller.send(warden_protocol.encode(Lend()))
    host.turn()
    host.served[0][0].wait(0.1, "nobody came")
    host.until_all_are_answered()
    with pytest.raises(warden_protocol.Refused, match="nobody came"):
        warden_protocol.outcome(caller.recv(4096))


@pytest.mark.parametrize("asked", [False, True])
def test_who_hangs_up_is_forgotten(host: Host, asked: bool) -> None:
    caller = host.caller()
    if asked:
        caller.send(warden_protocol.encode(Lend()))
        host.turn()
    caller.close()
    host.turn()
    host.turn()
    assert host.listener.connections == []
    for connection, _ in host.served:
        assert not connection.open
        host.listener.answer(connection, warden_protocol.ok({}))


def test_one_that_is_answered_with_another_is_not_heard_again(host: Host) -> None:
    """Both have something to say in the same turn, and the first to be heard ends the other."""

    def answer_all(*_: object) -> None:
        for connection in host.listener.connections:
            host.listener.answer(connection, warden_protocol.ok({}))

    host.listener.serve = answer_all
    callers = [host.caller() for _ in range(2)]
    host.turn()
    for caller in callers:
        caller.send(warden_protocol.encode(Lend()))
    host.turn()
    assert [warden_protocol.outcome(caller.recv(4096)) for caller in callers] == [{}, {}]
    assert host.listener.connections == []


def test_a_second_request_is_refused(host: Host) -> None:
    caller = host.caller()
    for _ in range(2):
        caller.send(warden_protocol.encode(Lend()))
    host.turn()
    host.turn()
    assert len(host.served) == 1
    with pytest.raises(warden_protocol.Refused, match="one request a connection"):
        warden_protocol.outcome(caller.recv(4096))


def test_who_does_not_read_keeps_nobody_waiting(host: Host) -> None:
    caller = host.caller()
    caller.send(warden_protocol.encode(Usage()))
    host.turn()
    caller.shutdown(socket.SHUT_RD)
    host.listener.answer(host.served[0][0], warden_protocol.ok({}))
    assert not host.served[0][0].open


def test_only_its_owner_can_connect(tmp_path: Path) -> None:
    with bound(tmp_path / "s", HERE):
        status = (tmp_path / "s").stat()
        assert (status.st_mode & 0o777, status.st_uid) == (0o600, HERE)


def test_the_socket_of_an_earlier_one_is_replaced(tmp_path: Path) -> None:
    bound(tmp_path / "s", HERE).close()
    bound(tmp_path / "s", HERE).close()


def lingering() -> socket.socket:
    """A connection whose last user has to wait until what is in it has arrived, for as long as its maker has said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    # It is never read, nor closed.
    accepted.detach()
    sender.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            sender.send(bytes(1 << 16))
    sender.setblocking(True)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 20))
    return sender


@pytest.mark.parametrize("admitted", [(HERE,), (HERE + 1,)])
@pytest.mark.parametrize(
    "packets",
    [
        [warden_protocol.encode(Usage())],
        [warden_protocol.encode(Usage())] * 2,
        [warden_protocol.encode(Plug("fabric"))],
        [b"?"],
    ],
)
def test_what_comes_along_keeps_nobody_waiting(tmp_path: Path, admitted: tuple[int, ...], packets: list[bytes]) -> None:
    with closing(Host(tmp_path / "s", admitted)) as host:
        caller = host.caller()
        for packet in packets:
            sent = [lingering() for _ in range(2)]
            socket.send_fds(caller, [packet], [one.fileno() for one in sent])
            for one in sent:
                one.close()
        started = time.monotonic()
        host.turn()
        for connection, _ in host.served:
            host.listener.answer(connection, warden_protocol.ok({}))
        assert time.monotonic() - started < 3
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
