"""What a job's fabric is, from its number and its nodes alone: the same on all of them."""

from __future__ import annotations

import json
from ipaddress import IPv4Address

import pytest

from moorage.common.errors import MoorageError, UserError
from moorage.common.job import LARGEST_ID
from moorage.root.net import names
from moorage.root.net.fabric import Fabric, Site

HOSTS = [IPv4Address("192.0.2.1") + number for number in range(3)]
LONGEST_NAME = 15


def on(place: int, job: int = 17, mtu: int = 1500) -> Fabric:
    return Fabric.of(job, "eth0", mtu, HOSTS, place, Site())


def test_every_node_sees_the_others() -> None:
    assert on(1).address == HOSTS[1]
    assert on(1).peers == (HOSTS[0], HOSTS[2])
    assert on(1).mtu == 1450


def test_addresses_differ_by_job_and_node_and_are_nobodys_card() -> None:
    assert on(0).hardware_address(0) == "0a:00:00:11:00:01"
    assert on(2, 0xABCDEF).hardware_address(253) == "0a:ab:cd:ef:00:fe"
    first = int(on(0).hardware_address(0)[:2], 16)
    assert first & 2, "it must be one of those that anybody may give"
    assert not first & 1, "it must not be a group's"


@pytest.mark.parametrize(("job", "vni"), [(1, 1), (17, 17), ((1 << 24) - 1, (1 << 24) - 1), ((1 << 24) + 5, 5)])
def test_the_network_comes_from_the_jobs_number(job: int, vni: int) -> None:
    assert on(0, job).vni == vni


def test_the_state_can_keep_it() -> None:
    assert Fabric.from_dict(json.loads(json.dumps(on(1).as_dict()))) == on(1)


def test_a_job_of_too_many_nodes() -> None:
    with pytest.raises(UserError, match="this job has 255 nodes: a fabric joins at most 254"):
        Fabric.of(17, "eth0", 1500, [IPv4Address("192.0.2.1")] * 255, 0, Site())


def test_an_interface_with_packets_too_small() -> None:
    with pytest.raises(MoorageError, match="packets on eth0 are too small for a fabric: its MTU is 1329"):
        on(0, mtu=1329)
    assert on(0, mtu=1330).mtu == 1280


def test_names_are_the_jobs_and_no_longer_than_the_kernel_has_them() -> None:
    assert names.link(17, "v") == "moor17v"
    assert len(names.link(LARGEST_ID, "v")) <= LONGEST_NAME
    assert names.job_of(names.link(LARGEST_ID, "v")) == LARGEST_ID


@pytest.mark.parametrize("name", ["eth0", "moor", "moorv", "moor0v", "moor17", "moor17vv", "moor-1v", "xmoor17v"])
def test_other_links_are_nobodys(name: str) -> None:
    assert names.job_of(name) is None
