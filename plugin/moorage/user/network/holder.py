"""The holder: it keeps the job's network namespace, connects what root plugs there, and forwards connections.

Podman's own network namespace lasts from its first container to its last. As long as this process runs in there
(`podman unshare --rootless-netns`) the namespace stays, with all that root has plugged into it. The keeper sends
commands on the standard input of this process, which ends when the keeper does.
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
from typing import TYPE_CHECKING, Final, assert_never

from moorage.common.events import Watch
from moorage.common.warden_protocol import ENDS
from moorage.user import messages
from moorage.user.messages import Forward, Gateway, Namespace
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
    # This comes first, so that the warden can plug while the rest is prepared.
    hand_over(keeper)
    with link_changes() as changes, Watch() as watch:
        from moorage.linux.links import links

        with links() as here:
            Holder(keeper, here, changes, watch).serve()


def hand_over(keeper: socket.socket) -> None:
    """Send the keeper this process's network namespace."""
    namespace = os.open(NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    socket.send_fds(keeper, [json.dumps(messages.encode_event(Namespace())).encode()], [namespace])
    os.close(namespace)


def link_changes() -> socket.socket:
    """A socket that can be read whenever a link has changed."""
    changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    changes.bind((0, _LINKS_CHANGE))
    return changes


def pass_bridged_frames() -> None:
    """Exempt frames that only pass the bridge from the rules of this network namespace.

    Where the node has br_netfilter loaded, Podman's address translation would rewrite them, and the rules would cost
    more than the rest of a frame's way through the bridge (seen on 6.18).
    """
    for setting in RULES:
        with suppress(OSError):
            (BRIDGES_RULES / setting).write_text("0")


class Holder:
    def __init__(self, keeper: socket.socket, here: Links, changes: socket.socket, watch: Watch) -> None:
        self.keeper = keeper
        self.here = here
        self.changes = changes
        self.watch = watch
        self.gateway: Gateway | None = None
        self._ended = False

    def serve(self) -> None:
        pass_bridged_frames()
        self.watch.on(self.keeper.fileno(), self._obey)
        self.watch.on(self.changes.fileno(), self._links_changed)
        self.connect()
        while not self._ended:
            self.watch.once()

    def connect(self) -> None:
        """Connect the links that root has plugged; what is connected already stays as it is."""
        # Any link may go at any moment. For a bridge that has gone the kernel says EINVAL, and a router whose link has
        # gone cannot be reached (seen on 6.18).
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

    def _connect_uplink(self) -> None:
        end = self.here.index(ENDS["uplink"])
        if not end or not self.gateway:
            return
        (link,) = self.here.ip.link("get", index=end)
        if link["state"] == "up":
            return
        with ignoring(errno.EEXIST):
            self.here.give_address(end, IPv4Interface(self.gateway.address))
        self.here.set_up(end)
        # The route of an earlier plugging is gone with its link.
        with ignoring(errno.EEXIST):
            self.here.ip.route("add", dst="default", gateway=self.gateway.router)

    def _links_changed(self) -> None:
        # The content does not matter: `connect` looks at all links.
        with suppress(OSError):
            while self.changes.recv(PIECE):
                pass
        self.connect()

    def _obey(self) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(self.keeper, LONGEST, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            packet, descriptors = b"", []
        if not packet:
            self._ended = True
            return
        match messages.decode_holder_command(json.loads(packet)):
            case Gateway() as gateway:
                self.gateway = gateway
                self.connect()
            case Forward(address, port):
                listener, kernel, namespace = descriptors
                Thread(target=forward, args=(listener, kernel, namespace, (address, port)), daemon=True).start()
            case None:
                pass
            case unknown:
                assert_never(unknown)


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
