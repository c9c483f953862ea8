"""Running a program in the delegated cgroup from outside of it: the caller's side.

Every call of Podman from a job's script starts here. So this imports only what is built into the interpreter: `signal`
and `socket` make enums of all their constants, and would double the time.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # as above
import _socket
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final, NoReturn

EXEC: Final = b"exec"
DOWN: Final = b"down"
EXITED: Final = b"E"
KILLED: Final = b"S"
FAILED: Final = b"X"

# Podman's own exit code for its own errors.
NOT_RUN: Final = 125
PASSED_ON: Final = tuple(
    getattr(_signal, f"SIG{name}") for name in ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "WINCH")
)
LENGTH: Final = 4


def main(run: str, socket: str, program: str) -> NoReturn:
    """Run the program with this process's arguments, environment, directory and streams, and end as it did."""
    if os.environ.get("SLURM_JOB_ID", own := os.path.basename(run)) != own:  # noqa: PTH119
        _become(os.fsencode(run), program)
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        _fill_streams()
        connection.connect(socket)
        _hold_signals()
        _ask(connection, program)
        _pass_signals_on(connection)
        answer = _answer(connection)
    except OSError as error:
        _fail(program, f"nothing runs in this job's tree: it is down, or not yet up ({error.strerror})")
    match answer[:1]:
        case b"E":
            os._exit(answer[1])
        case b"S":
            _end_by(answer[1])
        case b"X":
            _fail(program, answer[1:].decode(errors="replace"))
    _fail(program, "this job's tree was taken down")


def request(program: bytes, argv: list[bytes], environ: list[bytes], umask: int) -> bytes:
    """Encode a request. Its words are separated by a zero byte, which no word can contain."""
    words = [EXEC, program, b"%d" % umask, b"%d" % len(argv), *argv, *environ]
    body = b"\0".join(words)
    return len(body).to_bytes(LENGTH, "big") + body


def elsewhere(environ: Mapping[bytes, bytes], run: bytes) -> dict[bytes, bytes]:
    """The environment of another job that has inherited it from this one, without this one's parts."""
    below = run + b"/"
    path = [place for place in environ.get(b"PATH", b"").split(b":") if not place.startswith(below)]
    own = {name: value for name, value in environ.items() if not value.startswith(below)}
    return own | {b"PATH": b":".join(path)}


def _become(run: bytes, program: str) -> NoReturn:
    """Become the program, without a trace of the job that this process's environment comes from."""
    # The interpreter ignores these signals, and a program inherits that.
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execve(program, _argv(program), elsewhere(os.environb, run))  # noqa: S606
    except OSError as error:
        _fail(program, error.strerror or str(error))


def _argv(program: str) -> list[bytes]:
    return [os.fsencode(word) for word in (os.path.basename(program), *sys.argv[1:])]  # noqa: PTH119


def _ask(connection: _socket.socket, program: str) -> None:
    umask = os.umask(0)
    os.umask(umask)
    environ = [name + b"=" + value for name, value in os.environb.items()]
    here = os.open(".", os.O_PATH | os.O_CLOEXEC)
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2, here))
    body = request(os.fsencode(program), _argv(program), environ, umask)
    sent = connection.sendmsg([body], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    connection.sendall(body[sent:])


def _fill_streams() -> None:
    """Open closed standard streams: otherwise the next file that is opened would become one of them."""
    while True:
        number = os.open("/dev/null", os.O_RDWR)
        if number > 2:
            os.close(number)
            return


def _hold_signals() -> None:
    """Block signals until there is a program that they can be passed on to."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, PASSED_ON)


def _pass_signals_on(connection: _socket.socket) -> None:
    def pass_on(number: int, frame: object) -> None:
        connection.sendall(bytes([number]))

    for number in PASSED_ON:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, pass_on)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, PASSED_ON)


def _answer(connection: _socket.socket) -> bytes:
    answer = b""
    while chunk := connection.recv(4096):
        answer += chunk
    return answer


def _end_by(number: int) -> NoReturn:
    """End by the same signal, so that the parent sees it."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != _signal.SIGKILL:
        _signal.signal(number, _signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def _fail(program: str, reason: str) -> NoReturn:
    print(f"{os.path.basename(program)}: {reason}", file=sys.stderr, flush=True)  # noqa: PTH119
    os._exit(NOT_RUN)
