"""The bridge network that the containers of all nodes of a job share, as the Podman of each node has it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

from moorage.common.description import Mooring, Segment

NAME: Final = "moorage"
# The link exists as long as a container is in the network.
BRIDGE: Final = "moor0"
# Each node has addresses of this many bits: the first is the bridge's, the second belongs to the node container.
OWN: Final = 8
GATEWAY, NODE = 1, 2


def plugs(mooring: Mooring) -> list[str]:
    """The networks that the warden has to plug for this job."""
    return ["fabric"] * (mooring.fabric is not None) + ["uplink"] * (mooring.gateway is not None)


def wants_holder(mooring: Mooring) -> bool:
    """Whether the job's network is more than Podman makes by itself."""
    return mooring.fabric is not None or mooring.uplink in ("kernel", "none")


def address(segment: Segment, place: int) -> str:
    """The address of the node container; every node can compute it."""
    return str(_address(segment, place, NODE))


def creation(segment: Segment, place: int) -> tuple[str, ...]:
    """Podman's arguments. The network is the same on all nodes; each node gives out its own part of the addresses."""
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
    """The options that give a container the addresses of the node container."""
    return (f"--ip={address(segment, place)}", f"--mac-address={segment.hardware_address}")


def _address(segment: Segment, place: int, number: int) -> IPv4Address:
    return IPv4Network(segment.subnet)[(place << OWN) + number]
