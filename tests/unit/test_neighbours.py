"""What a node needs for jobs over several."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage import neighbours
from moorage.config import Fabric
from moorage.facts import Facts
from moorage.net import fabric
from moorage.node import Node
from support.site import DESCRIPTION, RELEASE, ROUTES, kernel_files, write


@pytest.fixture
def node(tmp_path: Path) -> Node:
    write(tmp_path, kernel_files() | DESCRIPTION)
    return Node(tmp_path)


def causes(rule: Fabric, node: Node) -> list[str]:
    return [finding.cause for finding in neighbours.check(rule, node, RELEASE, Facts())]


def test_a_healthy_node_has_all(node: Node) -> None:
    assert causes(Fabric(), node) == []


@pytest.mark.parametrize(
    ("rule", "first", "found"),
    [
        (Fabric(), "1024", 0),
        (Fabric(), "1023", 1),
        (Fabric(source_ports="600-700"), "701", 0),
        (Fabric(source_ports="600-700"), "700", 1),
        (Fabric(port=4789), "1024", 1),
        (Fabric(), "0", 1),
    ],
)
def test_ports_are_roots(rule: Fabric, first: str, found: int, node: Node) -> None:
    node.path(neighbours.UNPRIVILEGED).write_text(f"{first}\n")
    assert len(causes(rule, node)) == found


@pytest.mark.parametrize(
    ("destination", "mask", "met"),
    [
        ("0000590A", "0000FFFF", "10.89.0.0/16"),
        ("0007590A", "00FFFFFF", "10.89.7.0/24"),
        ("0000000A", "000000FF", "10.0.0.0/8"),
        ("00005A0A", "0000FFFF", ""),
        ("00000000", "00000000", ""),
    ],
)
def test_routes_that_meet_the_containers_network(destination: str, mask: str, met: str, node: Node) -> None:
    line = f"eth1\t{destination}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n"
    node.path(neighbours.ROUTES).write_text(ROUTES + line)
    expected = f"this node has a route to {met} by eth1, and containers would have 10.89.0.0/16"
    assert causes(Fabric(), node) == [expected] * bool(met)


def test_a_node_without_a_table_of_routes_has_none(node: Node) -> None:
    node.path(neighbours.ROUTES).unlink()
    assert causes(Fabric(), node) == []


def test_the_least_packets_are_those_of_a_fabric() -> None:
    """Written down again, for what it is taken from takes long to import."""
    assert fabric.LEAST_MTU + fabric.OVERHEAD == neighbours.LEAST_MTU
