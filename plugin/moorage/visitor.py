"""Who has come to a port of this node's loopback: the kernel knows whose the other end of each connection is."""

from __future__ import annotations

import socket
import struct
from typing import Final

ROOT: Final = 0
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
