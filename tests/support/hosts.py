"""Hosts as network namespaces, with a switch between them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address

from pyroute2 import IPRoute

from moorage.user.network.holder import pass_bridged_frames
from support.namespaces import inside, network

CABLE = "eth0"


@dataclass(frozen=True)
class Host:
    """A network namespace that stands for a node, or for what a job has on it."""

    namespace: int
    ip: IPRoute
    address: IPv4Address

    def index(self, name: str) -> int:
        return int(self.ip.link_lookup(ifname=name)[0])

    def up(self, name: str, address: str | None = None, prefix: int = 24) -> None:
        if address:
            self.ip.addr("add", index=self.index(name), address=address, prefixlen=prefix)
        self.ip.link("set", index=self.index(name), state="up")

    def links(self) -> set[str]:
        return {link.get_attr("IFLA_IFNAME") for link in self.ip.get_links()}

    def loses(self, name: str, limit: float = 10) -> bool:
        """Wait until the link is gone: a network namespace ends some time after its last holder."""
        end = time.monotonic() + limit
        while name in self.links() and time.monotonic() < end:
            time.sleep(0.01)
        return name not in self.links()

    def carries(self, name: str, limit: float = 10) -> bool:
        """Wait until the kernel sends by the link: some time after both its ends are up."""
        end = time.monotonic() + limit
        while not (up := self._state(name) == "UP") and time.monotonic() < end:
            time.sleep(0.01)
        return up

    def _state(self, name: str) -> str:
        (link,) = self.ip.link("get", index=self.index(name))
        return str(link.get_attr("IFLA_OPERSTATE"))

    def udp(self, address: str = "", port: int = 0, limit: float = 5) -> socket.socket:
        return self._bound(socket.SOCK_DGRAM, address, port, limit)

    def tcp(self, address: str = "", port: int = 0, limit: float = 5) -> socket.socket:
        return self._bound(socket.SOCK_STREAM, address, port, limit)

    def _bound(self, kind: socket.SocketKind, address: str, port: int, limit: float) -> socket.socket:
        with inside(self.namespace):
            made = socket.socket(socket.AF_INET, kind)
        made.settimeout(limit)
        if address or port:
            made.bind((address, port))
        return made


@contextmanager
def bare_host(address: str = "0.0.0.0") -> Iterator[Host]:  # noqa: S104 - it stands for no address
    with network() as namespace, inside(namespace), IPRoute() as ip:
        host = Host(namespace, ip, IPv4Address(address))
        host.up("lo")
        yield host


@contextmanager
def connected(count: int, mtu: int = 1500) -> Iterator[list[Host]]:
    """So many hosts, 192.0.2.1 and on, at one switch."""
    with ExitStack() as stack:
        switch = stack.enter_context(bare_host())
        with inside(switch.namespace):
            # It is no host, and has no packet filter.
            pass_bridged_frames()
        switch.ip.link("add", ifname="switch", kind="bridge")
        switch.up("switch")
        hosts = [stack.enter_context(bare_host(f"192.0.2.{number}")) for number in range(1, count + 1)]
        for number, host in enumerate(hosts):
            plug = {"ifname": CABLE, "net_ns_fd": host.namespace, "mtu": mtu}
            switch.ip.link("add", ifname=f"port{number}", kind="veth", peer=plug, mtu=mtu)
            switch.ip.link("set", index=switch.index(f"port{number}"), master=switch.index("switch"), state="up")
            host.up(CABLE, str(host.address))
        yield hosts


def arrives(sender: socket.socket, receiver: socket.socket, to: tuple[str, int] | None = None) -> bool:
    """Whether a datagram gets through within the receiver's time limit."""
    sender.sendto(b"moored", to or receiver.getsockname())
    try:
        return receiver.recv(100) == b"moored"
    except TimeoutError:
        return False
