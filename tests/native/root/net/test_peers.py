"""Which hosts and which interface a job's fabric gets, by the routes and addresses of real hosts."""

from __future__ import annotations

import os
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from moorage.common.errors import MoorageError
from moorage.linux.links import Links
from moorage.root.net import peers
from moorage.root.net.fabric import Site
from moorage.root.net.peers import Rule
from support.hosts import CABLE, Host
from support.namespaces import inside

NAMES = ["n1", "n2", "n3"]


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    place = tmp_path / "fabric"
    place.write_text("192.0.2.1 n1\n192.0.2.2 n2\n192.0.2.3 n3\n198.51.100.1 far\n192.0.2.255 all\n224.0.0.1 group\n")
    return place


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("interface", [None, CABLE])
def test_all_hosts_come_to_the_same(hosts: list[Host], listed: Path, place: int, interface: str | None) -> None:
    with inside(hosts[place].namespace):
        planned = peers.fabric(17, NAMES, NAMES[place], Rule(file=listed, interface=interface), Site())
    assert planned.hosts == tuple(host.address for host in hosts)
    assert (planned.interface, planned.place, planned.mtu) == (CABLE, place, 1450)


def test_the_mtu_is_the_interfaces(hosts: list[Host], listed: Path) -> None:
    hosts[0].ip.link("set", index=hosts[0].index(CABLE), mtu=1400)
    with inside(hosts[0].namespace):
        assert peers.fabric(17, NAMES, "n1", Rule(file=listed), Site()).mtu == 1350


def test_a_link_that_comes_meanwhile_is_passed_over(
    hosts: list[Host], listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job that is plugged brings one, and others' Prologs are at work."""

    def late(here: Links) -> dict[int, str]:
        found = by_index(here)
        here.give_address(here.make("bridge", "moor9u"), IPv4Interface("198.51.100.9/30"))
        return found

    by_index = Links.by_index
    monkeypatch.setattr(Links, "by_index", late)
    with inside(hosts[0].namespace):
        assert peers.fabric(17, NAMES, "n1", Rule(file=listed), Site()).interface == CABLE


@pytest.mark.parametrize(
    ("names", "interface", "line"),
    [
        (["n1", "far"], None, "node far cannot be reached: 198.51.100.1"),
        (["n1", "far"], CABLE, f"node far has no address on {CABLE}: 198.51.100.1"),
        (["n1", "all"], CABLE, f"node all has no address on {CABLE}: 192.0.2.255"),
        (["n1", "group"], None, "node group cannot be reached: 224.0.0.1"),
        (["n1", "n2"], "lo", "this node, n1, has no address on lo: 192.0.2.1"),
        (["n1", "n2"], "ib7", "this node, n1, has no address on ib7: 192.0.2.1"),
        (["n2", "n3"], None, "this node, n1, is not among the nodes of the job"),
        (["n1"], None, "a job on one node has no fabric"),
    ],
)
def test_what_is_refused(hosts: list[Host], listed: Path, names: list[str], interface: str | None, line: str) -> None:
    with inside(hosts[0].namespace), pytest.raises(MoorageError) as refusal:
        peers.fabric(17, names, "n1", Rule(file=listed, interface=interface), Site())
    assert str(refusal.value) == line


def test_a_file_of_another_user_names_nobodys_peers(hosts: list[Host], listed: Path) -> None:
    os.chown(listed, 65534, -1)
    with inside(hosts[0].namespace), pytest.raises(MoorageError, match="can be written by others than root"):
        peers.fabric(17, ["n1", "n2"], "n1", Rule(file=listed), Site())


def test_hosts_behind_a_router_lie_on_the_interface_that_leads_there(hosts: list[Host], listed: Path) -> None:
    hosts[0].ip.route("add", dst="198.51.100.0/24", gateway="192.0.2.3")
    with inside(hosts[0].namespace):
        planned = peers.fabric(17, ["n1", "far"], "n1", Rule(file=listed), Site())
    assert [str(host) for host in planned.hosts] == ["192.0.2.1", "198.51.100.1"]
