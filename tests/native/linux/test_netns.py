"""Whose network namespace was handed over: asked of the kernel, and of nothing that a user could have made up."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from moorage.linux import netns
from moorage.linux.netns import NotTheirs
from moorage.root.net import fabric
from support.hung import hung_mount
from support.namespaces import NETWORK, inside, network, unshare
from support.peers import Peer
from support.segments import PLUG, Node

USER = 54321
USERS = 0x10000000


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer(USER) as peer:
        peer.do(unshare, USERS | NETWORK)
        yield peer


def opened(path: str | Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def refused(descriptor: int, uid: int) -> str:
    try:
        with pytest.raises(NotTheirs) as refusal:
            netns.verify(descriptor, uid)
        return str(refusal.value)
    finally:
        os.close(descriptor)


def test_a_users_own(peer: Peer) -> None:
    descriptor = opened(f"/proc/{peer.pid}/ns/net")
    netns.verify(descriptor, USER)
    os.close(descriptor)


def test_somebody_elses(peer: Peer) -> None:
    line = refused(opened(f"/proc/{peer.pid}/ns/net"), USER + 1)
    assert line == f"the network namespace is not one of user {USER + 1}'s own"


def test_one_of_roots() -> None:
    with network() as other:
        assert "is not one of" in refused(os.dup(other), USER)


@pytest.mark.parametrize("uid", [0, USER])
def test_this_hosts_own(uid: int) -> None:
    """Root may run jobs, too."""
    assert "is not one of" in refused(opened("/proc/self/ns/net"), uid)


@pytest.mark.parametrize("kind", ["user", "mnt", "pid"])
def test_another_kind_of_namespace(peer: Peer, kind: str) -> None:
    assert refused(opened(f"/proc/{peer.pid}/ns/{kind}"), USER) == "this is no network namespace"


def test_something_else(tmp_path: Path) -> None:
    named = tmp_path / "net:[4026531840]"
    named.touch()
    reader, writer = os.pipe()
    os.close(writer)
    with socket.socket() as connection:
        others = [opened(named), opened("/dev/null"), opened(tmp_path), reader, os.dup(connection.fileno())]
        others.append(os.memfd_create("net:[4026531840]"))
        for descriptor in others:
            assert refused(descriptor, USER) == "this is no network namespace"


@pytest.mark.usefixtures("fresh_namespaces")
def test_a_file_whose_server_never_answers(tmp_path: Path) -> None:
    with hung_mount(tmp_path):
        started = time.monotonic()
        assert refused(os.open(tmp_path, os.O_PATH), USER) == "this is no network namespace"
        assert time.monotonic() - started < 5


def test_one_of_which_nothing_can_be_asked(peer: Peer) -> None:
    line = refused(os.open(f"/proc/{peer.pid}/ns/net", os.O_PATH), USER)
    assert line.startswith("the network namespace does not say whose it is: ")


def test_the_fabric_goes_there(nodes: list[Node], peer: Peer) -> None:
    """It takes no more than the descriptor; the rest the user does himself."""
    first, second = nodes
    theirs = opened(f"/proc/{peer.pid}/ns/net")
    netns.verify(theirs, USER)
    with inside(first.host.namespace):
        fabric.plug(first.fabric, theirs, PLUG)
    with inside(theirs):
        assert PLUG in {name for _, name in socket.if_nameindex()}
    os.close(theirs)
    peer.do(configure, first.segment_address, first.own_hardware_address)
    with second.listening() as ears:
        peer.do(say, second.segment_address)
        assert ears.recv(100) == b"moored"


def configure(address: str, hardware_address: str) -> None:
    with IPRoute() as ip:
        index = ip.link_lookup(ifname=PLUG)[0]
        ip.link("set", index=index, address=hardware_address)
        ip.addr("add", index=index, address=address, prefixlen=24)
        ip.link("set", index=index, state="up")


def say(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"moored", (address, 5000))
