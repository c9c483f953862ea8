"""A job on hosts that are namespaces, whose nodes share a fabric; and what somebody else might send into it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from pyroute2.nftables.main import NFTables

from moorage.linux import nft
from moorage.root.net import fabric
from moorage.root.net.fabric import Fabric, Site
from support.frames import ethernet, udp, vxlan
from support.hosts import CABLE, Host, bare_host
from support.namespaces import NETWORK, enter, inside
from support.peers import Peer

USER = 54321
FORGED = b"forged"
GENUINE = b"genuine"
PLUG = "fabric0"
SITE = Site()
PORT = 5000
FAMILIES = (nft.IPV4, nft.IPV6, nft.INET, nft.NETDEV)


@dataclass(frozen=True)
class Node:
    """One node of a job: the host, what it knows of the fabric, and the job's own network on it."""

    host: Host
    fabric: Fabric
    inner: Host

    @property
    def segment_address(self) -> str:
        return f"10.200.0.{self.fabric.place + 1}"

    def plug(self) -> None:
        with inside(self.host.namespace):
            fabric.plug(self.fabric, self.inner.namespace, PLUG)
        self.inner.ip.link("set", index=self.inner.index(PLUG), address=self.own_hardware_address)
        self.inner.up(PLUG, self.segment_address)

    @property
    def own_hardware_address(self) -> str:
        return self.fabric.hardware_address(self.fabric.place)

    def listening(self, limit: float = 5) -> socket.socket:
        return self.inner.udp(self.segment_address, PORT, limit)

    def forged(self, content: bytes, to: bytes | None = None) -> bytes:
        """A packet that brings a datagram for this node's container, if it is let in."""
        packet = udp("10.200.0.99", self.segment_address, PORT, content)
        target = bytes.fromhex(self.own_hardware_address.replace(":", "")) if to is None else to
        return vxlan(self.fabric.vni, ethernet(0x0800, packet, target))

    def sniffer(self, name: str = PLUG) -> socket.socket:
        """All frames that come in by the plugged end."""
        with inside(self.inner.namespace):
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            made.bind((name, 0))
        made.settimeout(0.3)
        return made


@contextmanager
def joined(hosts: Sequence[Host], job: int = 17, site: Site = SITE, mtu: int = 1500) -> Iterator[list[Node]]:
    """A job on these hosts, whose fabric is made and plugged."""
    with ExitStack() as stack:
        addresses = [host.address for host in hosts]
        nodes = []
        for place, host in enumerate(hosts):
            inner = stack.enter_context(bare_host())
            node = Node(host, Fabric.of(job, CABLE, mtu, addresses, place, site), inner)
            with inside(host.namespace):
                fabric.make(node.fabric, site)
            node.plug()
            nodes.append(node)
        for node in nodes:
            assert node.host.carries(node.fabric.host_end)
        yield nodes


def left(host: Host) -> list[str]:
    """What there is of any job on the host."""
    with inside(host.namespace):
        tables = [name for family in FAMILIES for name in nft.names(family)]
    return sorted(tables) + sorted(host.links() - {"lo", CABLE})


def flush(host: Host) -> None:
    """What `nft flush ruleset` does, with which reloading a site's packet filter begins."""
    with inside(host.namespace):
        for family in FAMILIES:
            with NFTables(nfgen_family=family) as rules:
                for name in nft.names(family):
                    rules.table("del", name=name)


def from_a_user(host: Host, address: object, packet: bytes, port: int = 0) -> None:
    """Sent to the fabric's port of a host by a process that is nobody in particular."""
    with Peer(0) as process:
        process.do(enter, host.namespace, NETWORK)
        process.do(become, USER)
        process.do(send, str(address), packet, port)


def from_root(host: Host, address: object, packet: bytes, port: int) -> None:
    with inside(host.namespace):
        send(str(address), packet, port)


def become(uid: int) -> None:
    os.setgroups([])
    os.setresuid(uid, uid, uid)


def send(address: str, packet: bytes, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
        somebody.bind(("", port))
        somebody.sendto(packet, (address, SITE.port))


def only_the_genuine_arrives(nodes: list[Node], ears: socket.socket) -> None:
    """Whatever was sent before, and was let in, would be read first."""
    with nodes[0].inner.udp(nodes[0].segment_address) as peer:
        peer.sendto(GENUINE, ears.getsockname())
    assert ears.recv(100) == GENUINE
