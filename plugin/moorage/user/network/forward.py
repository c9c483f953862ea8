"""Who has come to a port of this node's loopback: the kernel knows whose the other end of each connection is."""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from threading import BoundedSemaphore, Thread
from typing import Final

from moorage.linux import netns

ROOT: Final = 0
# pyroute2's DiagSocket does not fit: it lists all TCP sockets of the node for each question, and cannot take over a
# socket that was made in another network namespace.
_PROTOCOL: Final = 4
_ASKS: Final = 20
_REQUEST: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
_EVERY_STATE: Final = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
_ENDS: Final = struct.Struct("!HH4s12x4s12x")
# By any link, and whichever it is of several that there were.
_WHICHEVER: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
# Of the answer: whose it is, and its number as a file.
_OWNER: Final = struct.Struct("=II")
_OWNERS_PLACE: Final = _HEADER.size + 64
_LONGEST: Final = 4096

Address = tuple[str, int]


def kernel() -> socket.socket:
    """To be asked of the network namespace that this is made in, and in the words of this user namespace."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _PROTOCOL)


def is_welcome(asked: socket.socket, connection: socket.socket) -> bool:
    """Whether it is root, or the user who has accepted the connection; a kernel that cannot tell bars nobody."""
    here, there = connection.getsockname(), connection.getpeername()
    ours = owner(asked, here, there)
    return ours is None or owner(asked, there, here) in (ours, ROOT)


def owner(asked: socket.socket, near: Address, far: Address) -> int | None:
    """None if there is no such end, or nobody who holds it any more: such a one goes for root's with the kernel."""
    ends = _ENDS.pack(near[1], far[1], socket.inet_aton(near[0]), socket.inet_aton(far[0]))
    content = _EVERY_STATE + ends + _WHICHEVER
    asked.send(_HEADER.pack(_HEADER.size + len(content), _ASKS, _REQUEST, 0, 0) + content)
    answer = asked.recv(_LONGEST)
    if _HEADER.unpack_from(answer)[1] != _ASKS:
        return None
    uid, file = _OWNER.unpack_from(answer, _OWNERS_PLACE)
    return int(uid) if file else None


# Each connection takes two of the job's tasks.
MOST_CONNECTIONS: Final = 256

CONNECTING: Final = 10.0

# As long as this where there is no room for anybody.
RESTING: Final = 0.1

PIECE: Final = 1 << 16


def forward(door: int, kernel: int, namespace: int, target: tuple[str, int]) -> None:
    """Connect each of the user's who comes to the door with the target, from within another network namespace.

    Every user of the node can come, and be it to take all places: the kernel of where the door is says whose he is.
    """
    enter(namespace)
    listener, asked = socket.socket(fileno=door), socket.socket(fileno=kernel)
    listener.setblocking(True)
    room = BoundedSemaphore(MOST_CONNECTIONS)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            # The job has no descriptor to spare at this moment.
            time.sleep(RESTING)
            continue
        if not welcome(asked, connection) or not room.acquire(blocking=False):
            connection.close()
            continue
        try:
            # It inherits the namespace of who starts it.
            Thread(target=carry, args=(connection, target, room), daemon=True).start()
        except RuntimeError:
            # Nor a task.
            connection.close()
            room.release()


def welcome(asked: socket.socket, connection: socket.socket) -> bool:
    try:
        return is_welcome(asked, connection)
    except OSError:
        # He has gone meanwhile.
        return False


def enter(namespace: int) -> None:
    """This thread alone."""
    netns.enter(namespace)
    os.close(namespace)


def carry(connection: socket.socket, target: tuple[str, int], room: BoundedSemaphore) -> None:
    """Both ways, until the target has ended its own; who has come from anywhere would stay for ever."""
    try:
        with connection, socket.create_connection(target, CONNECTING) as inner:
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
    """Until there is no more, which the other side is told."""
    with suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
