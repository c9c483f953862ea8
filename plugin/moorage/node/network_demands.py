"""What joining nodes asks of one of them, in the words in which it is told: of a health check as of a job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from moorage.common.errors import UserError

if TYPE_CHECKING:
    from ipaddress import IPv4Network

# What a fabric adds to each packet, and what has to be left then: IPv6 goes no lower.
OVERHEAD: Final = 50
LEAST: Final = 1280


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
