"""The warden's socket: its connections with their bounds, its answers, and which task of the job a caller is."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import struct
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from moorage.common import warden_protocol
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.job import Job
from moorage.common.warden_protocol import Request
from moorage.linux.cgroup import Leaf, NoTask, leaf_of
from moorage.linux.process import Process, real_uid, running
from moorage.root import journal

# Twice what root's `usage` and two agents with their placeholders need; more connections are refused.
MOST_PER_PEER: Final = 8
BACKLOG: Final = 16
# The timeout of a caller between its connection and its request.
REQUEST_TIMEOUT: Final = 5.0
# The packet of this request stays in the socket: its descriptor is not for this process to touch.
WITH_DESCRIPTOR: Final = warden_protocol.Plug
# Closing received descriptors is interrupted after this time, again and again.
CLOSING: Final = 0.05
# The journal hears of refusals of one kind once in so many seconds.
REFUSALS: Final = 1.0
_CREDENTIALS: Final = struct.Struct("iII")


@dataclass(frozen=True)
class Peer:
    """The process that connected, as the kernel noted it at that moment."""

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
        self.wait(REQUEST_TIMEOUT, "no request came")

    def wait(self, seconds: float, late: str) -> None:
        """Let the caller wait for at most so many seconds, and then answer with the error `late`."""
        self.deadline = Deadline(seconds)
        self.late = late

    @property
    def open(self) -> bool:
        return self.stream.fileno() >= 0

    def answer(self, packet: bytes) -> None:
        """Send the only answer, and close. A caller that does not read gets none."""
        with hurried():
            with suppress(OSError):
                self.stream.send(packet)
                # Closing a connection with unread data resets it, and its answer would be lost. This call asks for no
                # descriptors: the kernel closes those that came with the data.
                self.stream.recv(warden_protocol.LONGEST)
            self.stream.close()


class Listener:
    """Accepts connections and gives each request to `serve`, which answers it or lets it wait."""

    def __init__(
        self,
        stream: socket.socket,
        events: selectors.BaseSelector,
        admitted: Container[int],
        serve: Callable[[Connection, Request], None],
    ) -> None:
        self.socket = stream
        self.events = events
        self.admitted = admitted
        self.serve = serve
        self.connections: list[Connection] = []
        stream.setblocking(False)
        # By default the signal ends a process. It only has to interrupt a system call.
        signal.signal(signal.SIGALRM, lambda *_: None)
        events.register(stream, selectors.EVENT_READ, self._accept)

    @property
    def next_deadline(self) -> float | None:
        """Seconds until the next caller has waited too long."""
        return min((connection.deadline.left for connection in self.connections), default=None)

    def expire(self) -> None:
        """Answer the callers that have waited too long, and drop closed connections."""
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
        """Stop listening to a connection that stays open: another process reads from it."""
        self.events.unregister(connection.stream)

    def _accept(self) -> None:
        try:
            stream, _ = self.socket.accept()
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
            # An earlier event of the same turn has closed it.
            return
        try:
            # This call asks for no descriptors: the kernel closes its copies of those that come with the data.
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
        """The packet, if it is the first one. A caller that hangs up while it waits sends a second, empty one."""
        if connection.asked:
            raise MoorageError("one request a connection")
        connection.asked = True
        return packet


class Answers:
    """Answers callers, and tells the journal about refusals, but not about each one."""

    def __init__(self, listener: Listener, job: Job) -> None:
        self.listener = listener
        self.job = job
        # When the journal may hear about each kind of thing again.
        self.silence: dict[str, Deadline] = {}

    def grant(self, connection: Connection, fields: Mapping[str, Any]) -> None:
        self.listener.answer(connection, warden_protocol.ok(fields))

    def refuse(self, connection: Connection, verb: str, reason: str) -> None:
        self.listener.answer(connection, warden_protocol.error(reason))
        if self.may_tell(verb):
            message = f"refused {verb} to process {connection.peer.pid}: {reason}"
            journal.log(message, phase=verb, job=self.job, priority=journal.NOTICE)

    def may_tell(self, kind: str) -> bool:
        """Whether the journal has not heard about this kind of thing just now."""
        if kind in self.silence and not self.silence[kind].passed:
            return False
        self.silence[kind] = Deadline(REFUSALS)
        return True


@dataclass(frozen=True)
class Caller:
    """A process of the job's owner, and the task that it belongs to."""

    process: Process
    leaf: Leaf

    def can_lend_to(self, agent: Caller) -> bool:
        """Whether the two are different tasks of one step."""
        return self.leaf.step == agent.leaf.step and self.leaf != agent.leaf


def identify(peer: Peer, job: Job) -> Caller:
    """The caller; NoTask unless it is a task of this job, run by the job's owner, and still running."""
    # The kernel reports 0 for a process of a pid namespace that is not below ours.
    if peer.uid != job.uid or peer.pid <= 0:
        raise NoTask("only a task of this job can ask for this")
    try:
        process = Process.of(peer.pid)
        with process.held() as descriptor:
            caller = Caller(process, leaf_of(peer.pid, job.names))
            owner = real_uid(peer.pid)
            if owner == job.uid and running(descriptor):
                return caller
    except (ProcessLookupError, FileNotFoundError) as error:
        raise NoTask("the caller has ended") from error
    raise NoTask(f"process {peer.pid} is not the owner's")


def bound(path: Path, owner: int) -> socket.socket:
    """A socket in root's directory to which only `owner` and root can connect."""
    path.unlink(missing_ok=True)
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Nobody can connect before it listens, whatever mode the umask gives it.
    stream.bind(os.fspath(path))
    path.chmod(0o600)
    os.chown(path, owner, -1, follow_symlinks=False)
    stream.listen(BACKLOG)
    return stream


@contextmanager
def hurried() -> Iterator[None]:
    """Interrupt a system call in which the kernel closes descriptors of a caller.

    If no other process has them, this process waits until they are closed, and a socket can be told to linger for
    years. A signal ends that wait, also for all other descriptors of the same packet (seen on 6.18).
    """
    signal.setitimer(signal.ITIMER_REAL, CLOSING, CLOSING)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
