"""The verb `plug`: the agent hands over a network namespace, and an end of one of the job's networks is put there.

What is handed over may be anything, also a file of a server of the user's that never answers: with that even closing it
may take for ever, and no signal ends it. So it is received by a process of its own, which holds nothing else.
"""

from __future__ import annotations

import array
import os
import socket
from typing import Final, NoReturn

from moorage.common import warden_protocol
from moorage.common.errors import told
from moorage.root.state import State
from moorage.root.warden.listener import Connection

# As long as this a caller waits.
LIMIT: Final = 10.0
# What the child keeps: the caller's connection, and the way back to the warden.
STREAM, ANSWER = 3, 4
# Room for one descriptor. Of more the kernel only says that they were there.
_ROOM: Final = socket.CMSG_LEN(array.array("i").itemsize)


class Plugging:
    """One such request, and the child that deals with it."""

    def __init__(self, connection: Connection, state: State, what: str) -> None:
        self.connection = connection
        self._answer, answer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._pid = os.fork()
        if self._pid == 0:
            _be_child(connection.stream.fileno(), answer, state, what)
        os.close(answer)
        self._end = os.pidfd_open(self._pid)

    def fileno(self) -> int:
        """Readable once the child has ended."""
        return self._end

    def answer(self) -> bytes:
        """What the child has to say, once it has ended."""
        os.waitpid(self._pid, 0)
        packet = os.read(self._answer, warden_protocol.LONGEST)
        for descriptor in (self._answer, self._end):
            os.close(descriptor)
        return packet or warden_protocol.error("the process that was to plug it has ended")


def _be_child(stream: int, answer: int, state: State, what: str) -> NoReturn:
    try:
        _keep_only(stream, answer)
        with socket.socket(fileno=STREAM) as connection:
            os.write(ANSWER, _plugged(connection, state, what))
            # Whatever was received is closed now, and not before all else is done.
            os._exit(0)
    finally:
        os._exit(1)


def _keep_only(stream: int, answer: int) -> None:
    """Nothing of the warden's is to wait for whatever this process has to wait for."""
    # Copies of copies: no number of these is one of the two any more.
    first = [os.dup(stream), os.dup(answer)]
    for number, copy in zip((STREAM, ANSWER), [os.dup(one) for one in first], strict=True):
        os.dup2(copy, number, inheritable=False)
    os.closerange(ANSWER + 1, os.sysconf("SC_OPEN_MAX"))


def _plugged(connection: socket.socket, state: State, what: str) -> bytes:
    try:
        # Only here: most jobs have nothing to be plugged.
        from moorage.root.net import job_networks

        job_networks.plug(state, what, _received(connection))
    except Exception as error:
        return warden_protocol.error(told(error))
    return warden_protocol.ok({})


def _received(connection: socket.socket) -> int:
    """The one descriptor that came along."""
    _, ancillary, flags, _ = connection.recvmsg(warden_protocol.LONGEST, _ROOM, socket.MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(content)
    if len(numbers) != 1 or flags & socket.MSG_CTRUNC:
        raise warden_protocol.Refused("not understood: plug comes with one descriptor, of a network namespace")
    return numbers[0]
