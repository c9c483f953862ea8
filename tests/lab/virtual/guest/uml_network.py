"""The network namespace of a lab's UML guests: made with the process that serves it, gone with its last process."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from moorage.common.errors import MoorageError

from .process import Process

PROGRAM = Path(__file__).with_name("uml_wire.py")
LIMIT = 30.0
NAME = "wire"


def start(ports: Sequence[int], log: Path, *, with_parent: bool = False) -> Process:
    """Listen on these ports of the loopback, one for each guest; `with_parent`: it ends when this thread ends."""
    tie = ["setpriv", "--pdeathsig", "KILL"] if with_parent else []
    with ExitStack() as stack, log.open("wb") as file:
        listeners = [stack.enter_context(_listener(port)) for port in ports]
        numbers = [listener.fileno() for listener in listeners]
        command = [*tie, "unshare", "--net", sys.executable, "-I", str(PROGRAM), str(len(ports)), *map(str, numbers)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, pass_fds=numbers,
            start_new_session=True,
        )  # fmt: skip
    stdout = process.stdout
    assert stdout
    with stdout:
        if not select.select([stdout], [], [], LIMIT)[0] or stdout.readline() != b"ready\n":
            process.kill()
            process.wait()
            raise MoorageError(f"the network of the guests did not come up: see {log}")
    # From here on it is known by its number and start time.
    process.returncode = 0
    return Process.of(process.pid)


def within(network: Process, argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` in that namespace; the process keeps its pid."""
    return ["nsenter", f"--net=/proc/{network.pid}/ns/net", "--", *argv]


def _listener(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener
