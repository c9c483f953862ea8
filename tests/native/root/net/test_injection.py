"""Frames that somebody else puts into a job's segment, sent for real: they do not arrive."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from support.frames import ALL
from support.hosts import CABLE, Host
from support.segments import FORGED, SITE, Node, from_a_user, from_root, only_the_genuine_arrives


@pytest.fixture
def listening(nodes: list[Node]) -> Iterator[socket.socket]:
    with nodes[1].listening() as ears:
        yield ears


def test_what_is_forged_here_would_arrive_if_it_were_let_in(nodes: list[Node], listening: socket.socket) -> None:
    """Root of a peer is trusted; nothing else below shows anything unless this does."""
    for port in (SITE.source_ports[0], 700, SITE.source_ports[1]):
        from_root(nodes[0].host, nodes[1].host.address, nodes[1].forged(FORGED), port)
        assert listening.recv(100) == FORGED


def test_from_a_user_of_another_node_of_the_job(nodes: list[Node], listening: socket.socket) -> None:
    from_a_user(nodes[0].host, nodes[1].host.address, nodes[1].forged(FORGED))
    from_a_user(nodes[0].host, nodes[1].host.address, nodes[1].forged(FORGED), 1024)
    from_a_user(nodes[0].host, nodes[1].host.address, nodes[1].forged(FORGED), 65535)
    only_the_genuine_arrives(nodes, listening)


def test_from_a_user_of_the_same_node(nodes: list[Node], listening: socket.socket) -> None:
    from_a_user(nodes[1].host, nodes[1].host.address, nodes[1].forged(FORGED))
    only_the_genuine_arrives(nodes, listening)


def test_from_a_user_of_a_node_that_is_not_the_jobs(
    hosts: list[Host], nodes: list[Node], listening: socket.socket
) -> None:
    from_a_user(hosts[2], nodes[1].host.address, nodes[1].forged(FORGED))
    only_the_genuine_arrives(nodes, listening)


def test_from_root_of_a_node_that_is_not_the_jobs(
    hosts: list[Host], nodes: list[Node], listening: socket.socket
) -> None:
    from_root(hosts[2], nodes[1].host.address, nodes[1].forged(FORGED), 700)
    only_the_genuine_arrives(nodes, listening)


def test_from_root_of_the_same_node(nodes: list[Node], listening: socket.socket) -> None:
    from_root(nodes[1].host, nodes[1].host.address, nodes[1].forged(FORGED), 700)
    only_the_genuine_arrives(nodes, listening)


def test_from_a_port_below_the_range(nodes: list[Node], listening: socket.socket) -> None:
    from_root(nodes[0].host, nodes[1].host.address, nodes[1].forged(FORGED), SITE.source_ports[0] - 1)
    only_the_genuine_arrives(nodes, listening)


def test_users_cannot_have_the_ports_that_count(nodes: list[Node]) -> None:
    for port in (SITE.port, *SITE.source_ports):
        with pytest.raises(PermissionError):
            from_a_user(nodes[0].host, nodes[1].host.address, nodes[1].forged(FORGED), port)


def test_in_pieces_of_which_only_the_first_has_a_port(nodes: list[Node], listening: socket.socket) -> None:
    """What is judged is the whole packet."""
    nodes[0].host.ip.link("set", index=nodes[0].host.index(CABLE), mtu=600)
    long = nodes[1].forged(FORGED + bytes(1200))
    from_a_user(nodes[0].host, nodes[1].host.address, long)
    only_the_genuine_arrives(nodes, listening)
    from_root(nodes[0].host, nodes[1].host.address, long, 700)
    assert listening.recv(4000)[: len(FORGED)] == FORGED, "in pieces it would arrive, or this test shows nothing"


def test_into_another_jobs_segment_by_its_number(nodes: list[Node], listening: socket.socket) -> None:
    """A user of the peer who knows the number, and sends as if it were his own job's."""
    from_a_user(nodes[0].host, nodes[1].host.address, nodes[1].forged(FORGED, ALL))
    only_the_genuine_arrives(nodes, listening)
