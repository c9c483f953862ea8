"""What the processes of a job do with its warden; unlike lambdas, these can be sent to another process."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from moorage.common import warden_protocol
from moorage.common.warden_protocol import Delegate, Lend, Plug, Request, Tell, Usage
from moorage.root.state import Phase
from support.node import JOB, Manager, saved
from support.peers import Peer
from support.processes import ended

SOCKET = JOB.socket


def ask(verb: str, limit: float = 10.0) -> dict[str, object]:
    """For a Peer: unlike a lambda, it can be sent."""
    return ask_to_plug("fabric", limit) if verb == "plug" else warden_protocol.call(SOCKET, request(verb), limit)


def request(verb: str) -> Request:
    found: dict[str, Request] = {one.verb: one for one in (Lend(), Delegate(), Usage(), Plug("fabric"), Tell("podman"))}
    return found[verb]


def ask_to_plug(what: str, limit: float = 10.0, path: str = "/proc/self/ns/net") -> dict[str, object]:
    """Into the caller's own network namespace, if nothing else is handed over."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return warden_protocol.call(SOCKET, Plug(what), limit, descriptor=descriptor)
    finally:
        os.close(descriptor)


def tell(word: str, cause: str = "") -> dict[str, object]:
    return warden_protocol.call(SOCKET, Tell(word, cause), 10.0)


def delegated(agent: Peer, placeholder: Peer) -> Path:
    placeholder.begin(ask, "lend")
    tree = Path(agent.do(ask, "delegate")["tree"])
    assert placeholder.result() == {"tree": str(tree)}
    return tree


def connect() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(os.fspath(SOCKET))


def await_gone(directory: Path, limit: float = 10.0) -> None:
    """There is no event for that; the kernel ends the poll of a file whose cgroup is removed."""
    end = time.monotonic() + limit
    while directory.exists() or saved().phase != Phase.ENDED:
        assert time.monotonic() < end, f"{directory} is still there"
        time.sleep(0.01)


def await_same(look: Callable[[], object], wanted: object, limit: float = 5.0) -> None:
    end = time.monotonic() + limit
    while (seen := look()) != wanted:
        assert time.monotonic() < end, f"{seen} is not {wanted}"
        time.sleep(0.01)


def be_called(name: bytes) -> None:
    ctypes.CDLL(None).prctl(15, name)


_KEPT: list[socket.socket] = []


def keep_connection() -> None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(os.fspath(SOCKET))
    _KEPT.append(connection)


def descriptors(manager: Manager) -> list[str]:
    return sorted(entry.name for entry in Path(f"/proc/{manager.pid}/fd").iterdir())


def exchange(*packets: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(10)
        connection.connect(os.fspath(SOCKET))
        for packet in packets:
            connection.send(packet)
        return connection.recv(4096)


def send_descriptors(request: bytes, *paths: str) -> bytes:
    """With descriptors of these; what is answered."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(20)
        connection.connect(os.fspath(SOCKET))
        opened = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]
        socket.send_fds(connection, [request], opened)
        for descriptor in opened:
            os.close(descriptor)
        return connection.recv(4096)


def exit_code_of(job: int) -> int:
    """Of a warden that does not become ready."""
    pid = os.fork()
    if pid == 0:
        Manager(job).become_warden()
    if not ended(pid, 5):
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
