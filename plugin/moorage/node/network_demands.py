"""What joining nodes asks of one of them, in the words in which it is told: of a health check as of a job."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moorage.common.errors import UserError

if TYPE_CHECKING:
    from ipaddress import IPv4Network

# What a fabric adds to each packet, and what has to be left then: IPv6 goes no lower.
OVERHEAD: Final = 50
LEAST: Final = 1280
FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
NODES_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
# The larger of this and a link's own counts; and 2, with which any sender is believed, is larger than 1.
OF_ALL_LINKS: Final = Path("/proc/sys/net/ipv4/conf/all/rp_filter")
# Above those that the kernel gives to whoever wants any. Who has a port of a service for a source port, and sends to
# another host, gets what that host sends to the service.
JOBS_PORTS: Final = (61000, 65535)


def ports(port: int, source_ports: tuple[int, int], first: int) -> UserError | None:
    """Unless an ordinary user of the node could send what its peers take for root's."""
    low, high = source_ports
    if 0 < low <= high < first and 0 < port < first:
        return None
    cause = f"fabric.port is {port} and fabric.source_ports are {low}-{high}, and from {first} on ports are everybody's"
    return UserError(cause, "choose lower ones, or raise net.ipv4.ip_unprivileged_port_start")


def route(networks: Iterable[IPv4Network], subnet: IPv4Network, setting: str = "fabric.subnet") -> UserError | None:
    """Unless the node would look for containers elsewhere."""
    taken = next((network for network in networks if network.overlaps(subnet)), None)
    if taken is None:
        return None
    cause = f"this node has a route to {taken}, and containers would have {subnet}"
    return UserError(cause, f"choose another {setting}")


def interface(name: str) -> UserError:
    cause = f"there is no interface {name} on this node to carry the fabric"
    return UserError(cause, "name the one that is there, in fabric.interface")


def packets(name: str, mtu: int) -> UserError | None:
    if mtu - OVERHEAD >= LEAST:
        return None
    cause = f"packets on {name} are too small for a fabric: its MTU is {mtu}"
    return UserError(cause, f"make it {LEAST + OVERHEAD} or more")


def forwarding() -> None:
    """What the site has to settle for all of the node before it can be a router for jobs."""
    if FORWARDING.read_text().strip() != "1":
        raise UserError(
            "this node forwards no packets, which the uplink kernel needs",
            "set net.ipv4.ip_forward=1, or take kernel out of uplink.allowed",
        )
    if OF_ALL_LINKS.read_text().strip() == "2":
        raise UserError(
            "net.ipv4.conf.all.rp_filter=2 has this node believe all senders, whatever the value of a job's link is",
            "set it to 0 or 1, or take kernel out of uplink.allowed",
        )
    low, high = NODES_PORTS.read_text().split()
    if int(high) >= JOBS_PORTS[0]:
        raise UserError(
            f"this node's own programs use ports {low}-{high}, and the uplink kernel {JOBS_PORTS[0]}-{JOBS_PORTS[1]}",
            f"have net.{NODES_PORTS.parent.name}.{NODES_PORTS.name} end below, or take kernel out of uplink.allowed",
        )
