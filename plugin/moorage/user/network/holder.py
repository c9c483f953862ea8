"""Holds the job's network namespace open, has what root plugs there reach Podman's bridge, and forwards connections.

Podman's own network namespace lasts from its first container to its last. As long as this process runs in there
(`podman unshare --rootless-netns`) it stays, and so does what root has plugged into it: for the whole life of the job.
It obeys its keeper, at the other end of its standard input, and ends with him.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Interface
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from moorage.common.events import Watch
from moorage.common.warden_protocol import ENDS
from moorage.user.network.bridge import BRIDGE
from moorage.user.network.forward import PIECE, forward

if TYPE_CHECKING:
    from moorage.linux.links import Links

LONGEST: Final = 4096
DESCRIPTORS: Final = 3
NETWORK: Final = Path("/proc/thread-self/ns/net")
# Of this network namespace.
BRIDGES_RULES: Final = Path("/proc/sys/net/bridge")
RULES: Final = ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables")

_LINKS_CHANGE: Final = 1


def main() -> None:
    keeper = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    # Before anything that takes its time: the warden can plug meanwhile.
    hand_over(keeper)
    with changes() as told, Watch() as watch:
        from moorage.linux.links import links

        with links() as here:
            Holder(keeper, here, told, watch).serve()


def hand_over(keeper: socket.socket) -> None:
    """Let the keeper have this process's network namespace."""
    namespace = os.open(NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    socket.send_fds(keeper, [json.dumps({"namespace": True}).encode()], [namespace])
    os.close(namespace)


def changes() -> socket.socket:
    """Tells that something has become of a link."""
    told = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    told.bind((0, _LINKS_CHANGE))
    return told


def pass_bridged_frames() -> None:
    """Have frames that only pass the bridge go through no rules of this network namespace.

    Where the node has br_netfilter loaded, Podman's address translation would rewrite them otherwise, and each would
    cost more than the rest of its way through the bridge (seen on 6.18).
    """
    for setting in RULES:
        with suppress(OSError):
            (BRIDGES_RULES / setting).write_text("0")


class Holder:
    def __init__(self, keeper: socket.socket, here: Links, told: socket.socket, watch: Watch) -> None:
        self.keeper = keeper
        self.here = here
        self.told = told
        self.watch = watch
        self.gateway: dict[str, Any] | None = None
        self.up: set[str] = set()
        self._ended = False

    def serve(self) -> None:
        pass_bridged_frames()
        self.watch.on(self.keeper.fileno(), self._obey)
        self.watch.on(self.told.fileno(), self._look)
        self.connect()
        while not self._ended:
            self.watch.once()

    def connect(self) -> None:
        """Have what root has plugged be of use, whenever it is there; nothing that was done is done again."""
        # Any of them may go at any moment; a bridge that has gone is an invalid one to the kernel, and a router without
        # its link cannot be reached (seen on 6.18).
        with ignoring(errno.ENODEV, errno.EINVAL):
            self._connect_fabric()
        with ignoring(errno.ENODEV, errno.ENETUNREACH):
            self._connect_uplink()

    def _connect_fabric(self) -> None:
        end, bridge = self.here.index(ENDS["fabric"]), self.here.index(BRIDGE)
        if not end or not bridge:
            return
        (link,) = self.here.ip.link("get", index=end)
        if link.get_attr("IFLA_MASTER") != bridge:
            self.here.put_below(end, bridge)
        if link["state"] != "up":
            self.here.set_up(end)
        self._tell_up("fabric")

    def _connect_uplink(self) -> None:
        end = self.here.index(ENDS["uplink"])
        if not end or not self.gateway:
            return
        (link,) = self.here.ip.link("get", index=end)
        if link["state"] == "up":
            return
        with ignoring(errno.EEXIST):
            self.here.give_address(end, IPv4Interface(self.gateway["address"]))
        self.here.set_up(end)
        # After a second plugging it went with the first.
        with ignoring(errno.EEXIST):
            self.here.ip.route("add", dst="default", gateway=self.gateway["router"])
        self._tell_up("uplink")

    def _tell_up(self, what: str) -> None:
        if what not in self.up:
            self.up.add(what)
            # If he is gone, that is heard next.
            with suppress(OSError):
                self.keeper.send(json.dumps({"up": what}).encode())

    def _look(self) -> None:
        # What it says is of no interest, nor what was lost of it.
        with suppress(OSError):
            while self.told.recv(PIECE):
                pass
        self.connect()

    def _obey(self) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(self.keeper, LONGEST, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            packet, descriptors = b"", []
        match json.loads(packet) if packet else None:
            case None:
                self._ended = True
            case {"gateway": dict(gateway)}:
                self.gateway = gateway
                self.connect()
            case {"forward": [str(address), int(port)]}:
                door, kernel, namespace = descriptors
                Thread(target=forward, args=(door, kernel, namespace, (address, port)), daemon=True).start()


@contextmanager
def ignoring(*codes: int) -> Iterator[None]:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except NetlinkError as error:
        if error.code not in codes:
            raise


if __name__ == "__main__":
    main()
