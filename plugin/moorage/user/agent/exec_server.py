"""Running a program in the delegated cgroup for a caller outside of it: the keeper's side."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.podman import Places, inside
from moorage.user.agent.exec_client import DOWN, EXEC, EXITED, FAILED, KILLED, LENGTH

MOST_BYTES: Final = 8 << 20
DESCRIPTORS: Final = 4
# A program whose caller is gone has this long to end after SIGTERM.
GRACE: Final = 10.0
EXPENDABLE: Final = "500"
RECEIVING: Final = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT


@dataclass(frozen=True)
class Request:
    """The program that a caller wants to run."""

    program: str
    umask: int
    argv: list[str]
    environ: dict[str, str]

    @classmethod
    def of(cls, body: bytes) -> Self:
        try:
            verb, program, umask, count, *words = body.split(b"\0")
            argv, environ = words[: int(count)], words[int(count) :]
            pairs = [word.partition(b"=") for word in environ]
            if verb != EXEC or len(argv) != int(count) or not argv:
                raise ValueError
            variables = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
            return cls(os.fsdecode(program), int(umask), [os.fsdecode(word) for word in argv], variables)
        except ValueError:
            raise MoorageError("not understood: are two releases of moorage installed?") from None


class Execution:
    """One connection: a request, then signals for the program that it has started; the answer is how that ended."""

    def __init__(self, connection: socket.socket, places: Places, down: Callable[[], object]) -> None:
        self.connection = connection
        self.places = places
        self.down = down
        self.process: subprocess.Popen[bytes] | None = None
        self.grace: Deadline | None = None
        # The caller is gone, or has its answer.
        self.caller_done = False
        self._received = b""
        self._descriptors: list[int] = []

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def over(self) -> bool:
        """The caller is done, and nothing runs."""
        return self.caller_done and not self.running

    def receive(self) -> None:
        """Receive a part of the request, or signals; the caller is gone if there is nothing."""
        try:
            chunk, descriptors, _, _ = socket.recv_fds(self.connection, 1 << 16, DESCRIPTORS, RECEIVING)
        except BlockingIOError:
            return
        except OSError:
            chunk, descriptors = b"", []
        self._descriptors += descriptors
        if not chunk:
            self._abandon()
        elif self.running:
            self._signal(chunk)
        elif not self.caller_done:
            self._received += chunk
            self._begin_if_complete()

    def ended(self, status: int) -> None:
        """The program has ended, and has been reaped."""
        code = os.waitstatus_to_exitcode(status)
        if self.process:
            self.process.returncode = code
        self._answer(EXITED + bytes([code]) if code >= 0 else KILLED + bytes([-code]))

    def signal_group(self, number: int = signal.SIGKILL) -> None:
        """Signal the program's group, unless it is reaped: from then on the number can be another group's."""
        if self.process and self.running:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def close(self) -> None:
        self.caller_done = True
        self.connection.close()
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _begin_if_complete(self) -> None:
        length = int.from_bytes(self._received[:LENGTH], "big")
        if length > MOST_BYTES:
            self._answer(FAILED + b"its arguments and environment are too long")
        elif len(self._received) >= LENGTH + max(length, 1):
            try:
                self._serve(self._received[LENGTH : LENGTH + length])
            except OSError as error:
                self._answer(FAILED + (error.strerror or str(error)).encode())
            except MoorageError as error:
                self._answer(FAILED + error.line.encode())

    def _serve(self, body: bytes) -> None:
        if body == DOWN:
            # The caller waits until this process closes the connection, which it does when it ends.
            self.down()
        else:
            self._begin(Request.of(body))

    def _begin(self, request: Request) -> None:
        if len(self._descriptors) != DESCRIPTORS:
            raise MoorageError("not understood: no streams came along")
        *streams, here = self._descriptors
        self.process = subprocess.Popen(
            request.argv,
            executable=request.program,
            env=inside(request.environ, self.places),
            cwd=f"/proc/self/fd/{here}",
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            umask=request.umask,
            start_new_session=True,
            preexec_fn=_become_expendable,
        )
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _signal(self, numbers: bytes) -> None:
        for number in numbers:
            if self.process and self.running:
                with suppress(OSError):
                    os.kill(self.process.pid, number)

    def _abandon(self) -> None:
        """End the program and its group, because the caller is gone."""
        self.caller_done = True
        if self.running and not self.grace:
            self.grace = Deadline(GRACE)
            self.signal_group(signal.SIGTERM)

    def _answer(self, answer: bytes) -> None:
        self.caller_done = True
        with suppress(OSError):
            self.connection.sendall(answer)
            self.connection.shutdown(socket.SHUT_WR)


def _become_expendable() -> None:
    """When a job runs out of memory, the kernel shall kill a container before the job's script."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(EXPENDABLE)
