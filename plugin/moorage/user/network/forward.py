"""Forwarding connections of the user, and only of the user, from a port of this node's loopback to the API.

Every user of the node can connect to the port. The kernel knows whose the other end of each connection is.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from threading import BoundedSemaphore, Thread
from typing import Final

from moorage.linux import netns

# Each connection takes two threads, which count as tasks of the job.
MOST_CONNECTIONS: Final = 256
CONNECT_TIMEOUT: Final = 10.0
# If there is no descriptor for another connection, it tries again after this many seconds.
RETRY: Final = 0.1
PIECE: Final = 1 << 16

ROOT: Final = 0
# The messages of sock_diag(7) and inet_diag. pyroute2's DiagSocket does not fit: it lists all TCP sockets of the node
# for each question, and cannot take over a socket that was made in another network namespace.
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
_EVERY_STATE: Final = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
_ENDS: Final = struct.Struct("!HH4s12x4s12x")
# By any link, with any cookie.
_ANY: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
# The parts of the answer that count: the socket's owner and inode.
_OWNER: Final = struct.Struct("=II")
_OWNER_OFFSET: Final = _HEADER.size + 64
_LONGEST: Final = 4096

Address = tuple[str, int]


def kernel() -> socket.socket:
    """A socket to ask the kernel about sockets of the current network namespace, by the uids of this user namespace."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)


def is_welcome(asked: socket.socket, connection: socket.socket) -> bool:
    """Whether the connection comes from root or from this user; True if the kernel cannot tell."""
    here, there = connection.getsockname(), connection.getpeername()
    ours = owner(asked, here, there)
    return ours is None or owner(asked, there, here) in (ours, ROOT)


def owner(asked: socket.socket, near: Address, far: Address) -> int | None:
    """The owner of a socket; None if the socket is gone, because the kernel reports uid 0 for an ownerless socket."""
    ends = _ENDS.pack(near[1], far[1], socket.inet_aton(near[0]), socket.inet_aton(far[0]))
    content = _EVERY_STATE + ends + _ANY
    asked.send(_HEADER.pack(_HEADER.size + len(content), _BY_FAMILY, _REQUEST, 0, 0) + content)
    answer = asked.recv(_LONGEST)
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    uid, file = _OWNER.unpack_from(answer, _OWNER_OFFSET)
    return int(uid) if file else None


def forward(listening: int, kernel: int, namespace: int, target: tuple[str, int]) -> None:
    """Connect every caller with the target, which is in another network namespace.

    A caller of another user is refused before it counts, so that it cannot use up the number of connections. The
    listening socket and `kernel` are of the same network namespace.
    """
    enter(namespace)
    listener, asked = socket.socket(fileno=listening), socket.socket(fileno=kernel)
    listener.setblocking(True)
    room = BoundedSemaphore(MOST_CONNECTIONS)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            # The job has no descriptor left at this moment.
            time.sleep(RETRY)
            continue
        if not _is_welcome(asked, connection) or not room.acquire(blocking=False):
            connection.close()
            continue
        try:
            # A thread inherits the network namespace of the thread that starts it.
            Thread(target=carry, args=(connection, target, room), daemon=True).start()
        except RuntimeError:
            # The job has no task left.
            connection.close()
            room.release()


def _is_welcome(asked: socket.socket, connection: socket.socket) -> bool:
    try:
        return is_welcome(asked, connection)
    except OSError:
        # The caller has gone meanwhile.
        return False


def enter(namespace: int) -> None:
    """Enter the network namespace with this thread alone."""
    netns.enter(namespace)
    os.close(namespace)


def carry(connection: socket.socket, target: tuple[str, int], room: BoundedSemaphore) -> None:
    """Copy in both directions until the target ends the connection: a caller might keep it open for ever."""
    try:
        with connection, socket.create_connection(target, CONNECT_TIMEOUT) as inner:
            inner.settimeout(None)
            back = Thread(target=answer, args=(inner, connection), daemon=True)
            back.start()
            copy(connection, inner)
            back.join()
    except (OSError, RuntimeError):
        return
    finally:
        room.release()


def answer(inner: socket.socket, connection: socket.socket) -> None:
    copy(inner, connection)
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until the source ends, and end the target then."""
    with suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
