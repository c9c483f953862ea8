"""The warden's ear: who may connect, for how long, how often at once, and what becomes of the rest."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import struct
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from moorage.common import warden_protocol
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.warden_protocol import Request

# All that root's `usage` and two agents with their placeholders need, twice; the rest is dropped.
MOST_PER_PEER: Final = 8
BACKLOG: Final = 16
# From the connection to the request.
SPEAKING: Final = 5.0
# Of these the packet is left where it is: what comes along with it is not for this process to touch.
WITH_DESCRIPTOR: Final = warden_protocol.Plug
# What came along is closed in this time, or a little more.
CLOSING: Final = 0.05
_CREDENTIALS: Final = struct.Struct("iII")


@dataclass(frozen=True)
class Peer:
    """Who connected, as the kernel noted it at that moment."""

    pid: int
    uid: int

    @classmethod
    def of(cls, connection: socket.socket) -> Self:
        noted = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(noted)
        return cls(pid, uid)


class Connection:
    """One caller, from its connection to its answer."""

    def __init__(self, stream: socket.socket) -> None:
        stream.setblocking(False)
        self.stream = stream
        self.peer = Peer.of(stream)
        self.asked = False
        self.wait(SPEAKING, "no request came")

    def wait(self, seconds: float, late: str) -> None:
        """Keep the caller waiting, at most so long, and then answer with `late`."""
        self.deadline = Deadline(seconds)
        self.late = late

    @property
    def open(self) -> bool:
        return self.stream.fileno() >= 0

    def answer(self, packet: bytes) -> None:
        """The first answer is the last; a caller that does not read gets none."""
        with hurried():
            with suppress(OSError):
                self.stream.send(packet)
                # With something unread in it, a closed connection is a reset one, and its last answer is lost.
                # Descriptors that came along and were not asked for are closed by the kernel.
                self.stream.recv(warden_protocol.LONGEST)
            self.stream.close()


class Listener:
    """Hands each request to `serve`, which answers the connection, or makes it wait."""

    def __init__(
        self,
        ear: socket.socket,
        events: selectors.BaseSelector,
        admitted: Container[int],
        serve: Callable[[Connection, Request], None],
    ) -> None:
        self.ear = ear
        self.events = events
        self.admitted = admitted
        self.serve = serve
        self.connections: list[Connection] = []
        ear.setblocking(False)
        # It would end us; all that it has to do is to come.
        signal.signal(signal.SIGALRM, lambda *_: None)
        events.register(ear, selectors.EVENT_READ, self._accept)

    @property
    def patience(self) -> float | None:
        """How long nothing can become due."""
        return min((connection.deadline.left for connection in self.connections), default=None)

    def tidy(self) -> None:
        """Answer those whose time is up, and forget those who are gone."""
        for connection in self.connections:
            if connection.open and connection.deadline.passed:
                self.answer(connection, warden_protocol.error(connection.late))
        self.connections = [connection for connection in self.connections if connection.open]

    def answer(self, connection: Connection, packet: bytes) -> None:
        if connection.open:
            with suppress(KeyError):
                self.events.unregister(connection.stream)
            connection.answer(packet)

    def leave(self, connection: Connection) -> None:
        """Hear no more of it, though it stays open: another process reads on and answers."""
        self.events.unregister(connection.stream)

    def _accept(self) -> None:
        try:
            stream, _ = self.ear.accept()
        except (BlockingIOError, ConnectionError):
            return
        connection = Connection(stream)
        if refusal := self._refusal(connection.peer):
            connection.answer(warden_protocol.error(refusal))
            return
        self.connections.append(connection)
        self.events.register(stream, selectors.EVENT_READ, lambda: self._hear(connection))

    def _refusal(self, peer: Peer) -> str:
        if peer.uid not in self.admitted:
            return "this warden answers the owner of its job"
        same = sum(connection.open and connection.peer.uid == peer.uid for connection in self.connections)
        return "too many connections at once: wait for the answers" if same >= MOST_PER_PEER else ""

    def _hear(self, connection: Connection) -> None:
        if not connection.open:
            # Another event of the same moment has ended it.
            return
        try:
            # Descriptors that come along are closed by the kernel, because nobody asks for them here.
            packet = connection.stream.recv(warden_protocol.LONGEST + 1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except ConnectionError:
            packet = b""
        try:
            request = warden_protocol.decode(self._only(connection, packet))
        except MoorageError as refusal:
            self.answer(connection, warden_protocol.error(str(refusal)))
            return
        if not isinstance(request, WITH_DESCRIPTOR):
            with hurried():
                connection.stream.recv(warden_protocol.LONGEST + 1)
        self.serve(connection, request)

    def _only(self, connection: Connection, packet: bytes) -> bytes:
        """The packet, if it is the first; one who hangs up while he waits sends an empty one."""
        if connection.asked:
            raise MoorageError("one request a connection")
        connection.asked = True
        return packet


@contextmanager
def hurried() -> Iterator[None]:
    """For what has the kernel close descriptors that came along.

    If nobody else has them any more, closing them is our work, and a socket may have been told to linger over it for
    years. A signal ends that, also for all others that came along with it (seen on 6.18).
    """
    signal.setitimer(signal.ITIMER_REAL, CLOSING, CLOSING)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def bound(path: Path, owner: int) -> socket.socket:
    """A socket in root's directory to which only `owner` and root can connect."""
    path.unlink(missing_ok=True)
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Until it listens nobody can connect, whatever the umask made of its mode.
    ear.bind(os.fspath(path))
    path.chmod(0o600)
    os.chown(path, owner, -1, follow_symlinks=False)
    ear.listen(BACKLOG)
    return ear
