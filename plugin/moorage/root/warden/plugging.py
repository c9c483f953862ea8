"""A job's network is plugged into its containers' network namespace. This file reads from top to bottom as it happens:

1. The agent sends `plug` with a descriptor of the namespace. The listener looks at the packet and leaves it in the
   socket. The descriptor may be anything, also a file of a user's server that never answers: closing such a file may
   take for ever, and no signal ends that.
2. The warden checks who asks, and how often.
3. It starts a child, which keeps the caller's connection, a pipe to the warden, and nothing else (`HandOver`).
4. The child receives the descriptor, verifies it, and puts an end of the network there (`job_networks.plug`).
5. The child writes its answer to the pipe, and ends. Only now the descriptor is closed.
6. The warden passes the answer on to the agent.

If the child hangs, the agent is refused after TIMEOUT, and the warden works on.
"""

from __future__ import annotations

import array
import fcntl
import os
import selectors
import socket
from typing import Final, NoReturn

from moorage.common import warden_protocol
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, told
from moorage.root.state import Phase, State
from moorage.root.warden.listener import Answers, Connection, identify

# The timeout of a request to plug.
TIMEOUT: Final = 10.0
# A network is plugged at most so many times in so many seconds.
MOST_PLUGS: Final = 10
PERIOD: Final = 10.0
# What the child keeps: the caller's connection, and the pipe to the warden.
STREAM, ANSWER = 3, 4
# Room for one descriptor. Of more the kernel only says that they were there.
_ROOM: Final = socket.CMSG_LEN(array.array("i").itemsize)


class Plugging:
    """The requests to plug a network: one at a time, and not too often."""

    def __init__(self, events: selectors.BaseSelector, answers: Answers) -> None:
        self.events = events
        self.answers = answers
        self.current: HandOver | None = None
        # When each of the latest requests no longer counts.
        self.recent: list[Deadline] = []

    def ask(self, connection: Connection, state: State, what: str) -> None:
        """Steps 2 and 3. Only the agent may plug, again each time when its network is made anew."""
        caller = identify(connection.peer, state.job)
        if state.phase != Phase.DELEGATED or caller.process != state.agent:
            raise MoorageError("only the agent of this job can ask for this")
        if not state.networked:
            raise MoorageError("this job has no network to plug")
        if self.current:
            raise MoorageError("an earlier network is being plugged: ask again")
        self.recent = [one for one in self.recent if not one.passed]
        if len(self.recent) >= MOST_PLUGS:
            raise MoorageError("this is asked for too often: ask again in a while")
        self.recent.append(Deadline(PERIOD))
        self.answers.listener.leave(connection)
        connection.wait(TIMEOUT, "what was handed over does not respond")
        self.current = HandOver(connection, state, what)
        self.events.register(self.current, selectors.EVENT_READ, self._done)

    def _done(self) -> None:
        """Step 6."""
        if self.current is None:
            return
        self.events.unregister(self.current)
        connection, answer = self.current.connection, self.current.answer()
        self.current = None
        try:
            fields = warden_protocol.outcome(answer)
        except warden_protocol.Refused as refused:
            self.answers.refuse(connection, "plug", str(refused))
        else:
            self.answers.grant(connection, fields)


class HandOver:
    """One request to plug, and the child that receives its descriptor."""

    def __init__(self, connection: Connection, state: State, what: str) -> None:
        self.connection = connection
        self.state = state
        self.what = what
        self._answer, answer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._pid = os.fork()
        if self._pid == 0:
            self._be_child(answer)
        os.close(answer)
        self._end = os.pidfd_open(self._pid)

    def fileno(self) -> int:
        """Readable once the child has ended."""
        return self._end

    def answer(self) -> bytes:
        """The child's answer, after its end."""
        os.waitpid(self._pid, 0)
        packet = os.read(self._answer, warden_protocol.LONGEST)
        for descriptor in (self._answer, self._end):
            os.close(descriptor)
        return packet or warden_protocol.error("the process that was to plug it has ended")

    def _be_child(self, answer: int) -> NoReturn:
        """Steps 4 and 5."""
        try:
            keep_only(self.connection.stream.fileno(), answer)
            with socket.socket(fileno=STREAM) as connection:
                os.write(ANSWER, plugged(connection, self.state, self.what))
                # The received descriptor is closed now, after everything else is done.
                os._exit(0)
        finally:
            os._exit(1)


def keep_only(stream: int, answer: int) -> None:
    """Close all descriptors but these two and the standard ones: nothing of the warden's waits for this process."""
    # Each may have the number that the other one gets, so both move out of the way first.
    copies = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, ANSWER + 1) for one in (stream, answer)]
    for number, copy in zip((STREAM, ANSWER), copies, strict=True):
        os.dup2(copy, number, inheritable=False)
    os.closerange(ANSWER + 1, os.sysconf("SC_OPEN_MAX"))


def plugged(connection: socket.socket, state: State, what: str) -> bytes:
    """The answer to a request that waits in the connection, after it was carried out."""
    try:
        # Imported here, because most jobs have no network of their own.
        from moorage.root.net import job_networks

        job_networks.plug(state, what, _received(connection))
    except Exception as error:
        return warden_protocol.error(told(error))
    return warden_protocol.ok({})


def _received(connection: socket.socket) -> int:
    """The one descriptor of the request."""
    _, ancillary, flags, _ = connection.recvmsg(warden_protocol.LONGEST, _ROOM, socket.MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(content)
    if len(numbers) != 1 or flags & socket.MSG_CTRUNC:
        raise warden_protocol.Refused("not understood: plug comes with one descriptor, of a network namespace")
    return numbers[0]
