"""The network of a job over several nodes: who has which addresses, and what is wanted of whom."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from moorage.common.description import Mooring, Segment, WayOut
from moorage.common.podman import Places
from moorage.user.network import bridge
from support.described import described

SEGMENT = Segment("10.89.0.0/16", 1450, "0a:00:00:11:00:02", ("n1", "n2"))
MOORING = Mooring.from_dict(described(), Places(Path("/run/moorage/17")))
GATEWAY = WayOut("100.96.0.2/30", "100.96.0.1", 1500)


@pytest.mark.parametrize(
    ("subnet", "place", "own", "gateway", "node"),
    [
        ("10.89.0.0/16", 0, "10.89.0.0/24", "10.89.0.1", "10.89.0.2"),
        ("10.89.0.0/16", 1, "10.89.1.0/24", "10.89.1.1", "10.89.1.2"),
        ("10.89.0.0/16", 253, "10.89.253.0/24", "10.89.253.1", "10.89.253.2"),
        ("172.16.0.0/12", 2, "172.16.2.0/24", "172.16.2.1", "172.16.2.2"),
    ],
)
def test_each_node_has_a_part_of_its_own(subnet: str, place: int, own: str, gateway: str, node: str) -> None:
    segment = replace(SEGMENT, subnet=subnet)
    words = bridge.creation(segment, place)
    assert {f"--subnet={subnet}", f"--ip-range={own}", f"--gateway={gateway}"} < set(words)
    assert bridge.address(segment, place) == node
    assert IPv4Address(node) in IPv4Network(own)


def test_frames_of_the_fabric_fit_and_the_bridge_is_known() -> None:
    words = bridge.creation(SEGMENT, 1)
    assert {"--opt=mtu=1450", "--interface-name=moor0"} < set(words)
    assert words[-1] == "moorage"


def test_the_node_has_the_addresses_that_the_fabric_knows() -> None:
    assert bridge.membership(SEGMENT, 1) == ("--ip=10.89.1.2", "--mac-address=0a:00:00:11:00:02")


@pytest.mark.parametrize(
    ("changes", "plugs", "holder"),
    [
        ({}, [], False),
        ({"fabric": SEGMENT}, ["fabric"], True),
        ({"uplink": "none"}, [], True),
        ({"uplink": "kernel", "gateway": GATEWAY}, ["uplink"], True),
        ({"uplink": "kernel", "gateway": GATEWAY, "fabric": SEGMENT}, ["fabric", "uplink"], True),
    ],
)
def test_what_is_wanted(changes: dict[str, Any], plugs: list[str], holder: bool) -> None:
    mooring = replace(MOORING, **changes)
    assert bridge.plugs(mooring) == plugs
    assert bridge.wants_holder(mooring) is holder
