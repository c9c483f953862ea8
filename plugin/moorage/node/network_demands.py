"""The demands of fabric and gateway on a node, in one wording for the doctor and for jobs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moorage.common.errors import UserError
from moorage.node.hostfiles import HERE, Node

if TYPE_CHECKING:
    from ipaddress import IPv4Network

# The bytes that a fabric adds to each packet, and the least MTU inside: IPv6 allows no smaller one.
OVERHEAD: Final = 50
LEAST: Final = 1280
FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
NODES_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
# The larger of this and a link's own value counts: 2, loose mode, would win over a link's 1, strict mode.
OF_ALL_LINKS: Final = Path("/proc/sys/net/ipv4/conf/all/rp_filter")
# Above the range from which the kernel takes source ports. A job that sends from the port of a service of the node gets
# the answers that were meant for the service.
JOBS_PORTS: Final = (61000, 65535)


def ports(port: int, source_ports: tuple[int, int], first: int) -> UserError | None:
    """An error if a user without privileges can send from a port that the other nodes take for root's."""
    low, high = source_ports
    if 0 < low <= high < first and 0 < port < first:
        return None
    cause = (
        f"fabric.port is {port} and fabric.source_ports are {low}-{high}, "
        f"and ports from {first} up are open to unprivileged users"
    )
    return UserError(cause, "choose lower ones, or raise net.ipv4.ip_unprivileged_port_start", code="M-FABRIC-3")


def route(networks: Iterable[IPv4Network], subnet: IPv4Network, setting: str = "fabric.subnet") -> UserError | None:
    """An error if the node has a route to a part of this network."""
    taken = next((network for network in networks if network.overlaps(subnet)), None)
    if taken is None:
        return None
    cause = f"this node has a route to {taken}, and containers would have {subnet}"
    return UserError(cause, f"choose another {setting}", code="M-NET-1")


def interface(name: str) -> UserError:
    cause = f"there is no interface {name} on this node to carry the fabric"
    return UserError(cause, "name the one that is there, in fabric.interface", code="M-FABRIC-4")


def packets(name: str, mtu: int) -> UserError | None:
    if mtu - OVERHEAD >= LEAST:
        return None
    cause = f"packets on {name} are too small for a fabric: its MTU is {mtu}"
    return UserError(cause, f"make it {LEAST + OVERHEAD} or more", code="M-FABRIC-5")


def forwarding(node: Node = HERE) -> None:
    """A UserError if the kernel's configuration keeps this node from being a router for jobs."""
    if node.text(str(FORWARDING)).strip() != "1":
        raise UserError(
            "this node does not forward packets, and the uplink kernel needs that",
            "set net.ipv4.ip_forward=1, or take kernel out of uplink.allowed",
            code="M-UPLINK-2",
        )
    if node.text(str(OF_ALL_LINKS)).strip() == "2":
        raise UserError(
            "net.ipv4.conf.all.rp_filter=2 has this node believe all senders, whatever the value of a job's link is",
            "set it to 0 or 1, or take kernel out of uplink.allowed",
            code="M-UPLINK-3",
        )
    low, high = node.text(str(NODES_PORTS)).split()
    if int(high) >= JOBS_PORTS[0]:
        raise UserError(
            f"this node's own programs use ports {low}-{high}, and the uplink kernel {JOBS_PORTS[0]}-{JOBS_PORTS[1]}",
            f"have net.{NODES_PORTS.parent.name}.{NODES_PORTS.name} end below, or take kernel out of uplink.allowed",
            code="M-UPLINK-4",
        )
