"""The bridge network that the containers of all nodes of a job share, as the Podman of each node has it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

from moorage.common.description import Mooring, Segment

NAME: Final = "moorage"
# There as long as a container is in the network.
BRIDGE: Final = "moor0"
# Of each node's addresses, which are so many bits long, the first is the bridge's and the second the cluster's node's.
OWN: Final = 8
GATEWAY, NODE = 1, 2


def plugs(mooring: Mooring) -> list[str]:
    """What the warden has for this job's network."""
    return ["fabric"] * (mooring.fabric is not None) + ["uplink"] * (mooring.gateway is not None)


def wants_holder(mooring: Mooring) -> bool:
    """Whether the job's network is more than Podman makes by itself."""
    return mooring.fabric is not None or mooring.uplink in ("kernel", "none")


def address(segment: Segment, place: int) -> str:
    """That of the cluster's node, which all others know without asking."""
    return str(_address(segment, place, NODE))


def creation(segment: Segment, place: int) -> tuple[str, ...]:
    """What Podman is told: one network everywhere, of which each node gives out a part of its own."""
    return (
        "network",
        "create",
        "--driver=bridge",
        f"--subnet={segment.subnet}",
        f"--ip-range={IPv4Network((_address(segment, place, 0), 32 - OWN))}",
        f"--gateway={_address(segment, place, GATEWAY)}",
        f"--interface-name={BRIDGE}",
        f"--opt=mtu={segment.mtu}",
        NAME,
    )


def membership(segment: Segment, place: int) -> tuple[str, ...]:
    """What makes a container the one that all nodes know by its addresses."""
    return (f"--ip={address(segment, place)}", f"--mac-address={segment.hardware_address}")


def _address(segment: Segment, place: int, number: int) -> IPv4Address:
    return IPv4Network(segment.subnet)[(place << OWN) + number]
