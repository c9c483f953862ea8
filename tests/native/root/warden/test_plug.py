"""What the agent hands over for the job's networks: an end is plugged there, or it is refused, whatever it is."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from pyroute2 import IPRoute

from moorage.common import warden_protocol
from moorage.linux.process import Process
from moorage.root import lock
from moorage.root.net import fabric, gateway
from moorage.root.net.fabric import Fabric, Site
from moorage.root.net.gateway import Gateway
from moorage.root.warden import plugging
from support.callers import ask_to_plug, await_gone, await_same, delegated, descriptors, send_descriptors
from support.cgroups import leaf
from support.hosts import CABLE, Host, connected
from support.hung import await_blocked, hung_mount
from support.namespaces import NETWORK, inside, unshare
from support.node import JOB, USER, Manager, saved
from support.peers import Peer
from support.segments import flush
from support.unit import confine

USERS = 0x10000000
OWN = "/proc/self/ns/net"
REQUEST = warden_protocol.encode(warden_protocol.Plug("fabric"))


@pytest.fixture
def host() -> Iterator[Host]:
    with connected(2) as (host, _):
        yield host


@pytest.fixture
def networked(scope: Path, host: Host) -> None:
    """As the Prolog of a job on two nodes leaves it, whose uplink is the kernel's besides."""
    peers = [host.address, host.address + 1]
    with inside(host.namespace):
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        host.ip.route("add", dst="default", gateway=str(peers[1]))
        state = saved().changed(
            fabric=Fabric.of(JOB.id, CABLE, 1500, peers, 0, Site()),
            gateway=Gateway.of(JOB.id, Site().port, gateway.Site()),
        )
        assert state.fabric
        assert state.gateway
        fabric.make(state.fabric, Site())
        gateway.make(state.gateway)


class Confined(Manager):
    """With what its unit leaves it."""

    def become_warden(self) -> NoReturn:
        confine()
        super().become_warden()


@pytest.fixture
def running(networked: None, host: Host) -> Iterator[Manager]:
    """As systemd runs it."""
    with inside(host.namespace):
        manager = Confined()
        manager.start()
    yield manager
    manager.__exit__()


@pytest.fixture
def moored(running: Manager, agent: Peer, placeholder: Peer) -> Peer:
    """The agent, in a user namespace of the user's, as he is once his containers run."""
    delegated(agent, placeholder)
    agent.do(unshare, USERS | NETWORK)
    return agent


def links() -> list[str]:
    """For a Peer."""
    return sorted(name for _, name in socket.if_nameindex())


def refused(answer: bytes) -> str:
    with pytest.raises(warden_protocol.Refused) as refusal:
        warden_protocol.outcome(answer)
    return str(refusal.value)


def test_both_of_a_jobs_networks(moored: Peer, host: Host) -> None:
    assert moored.do(ask_to_plug, "fabric") == moored.do(ask_to_plug, "uplink") == {}
    assert moored.do(links) == ["fabric0", "lo", "uplink0"]
    assert {"moor17h", "moor17u", "moor17v"} < host.links()


def test_again_where_the_network_is_made_anew(moored: Peer, host: Host) -> None:
    moored.do(ask_to_plug, "fabric")
    before = host.index("moor17h")
    moored.do(unshare, NETWORK)
    assert moored.do(ask_to_plug, "fabric") == {}
    assert moored.do(links) == ["fabric0", "lo"]
    assert host.index("moor17h") != before


def test_also_from_a_warden_that_was_started_anew(moored: Peer, running: Manager, host: Host) -> None:
    with inside(host.namespace):
        running.kill()
        running.start()
    assert moored.do(ask_to_plug, "fabric") == {}


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ([], "plug comes with one descriptor"),
        ([OWN, OWN], "plug comes with one descriptor"),
        ([OWN] * 50, "plug comes with one descriptor"),
        (["/dev/null"], "this is no network namespace"),
        (["/"], "this is no network namespace"),
        (["/proc/self/ns/user"], "this is no network namespace"),
    ],
)
def test_what_is_not_one_network_namespace(moored: Peer, running: Manager, paths: list[str], why: str) -> None:
    before = descriptors(running)
    assert why in refused(moored.do(send_descriptors, REQUEST, *paths))
    await_same(lambda: set(descriptors(running)) <= set(before), True)
    assert moored.do(ask_to_plug, "fabric") == {}


def test_a_network_namespace_that_is_not_the_users_own(
    running: Manager, agent: Peer, placeholder: Peer, host: Host
) -> None:
    """Such as the one that he has without any container."""
    delegated(agent, placeholder)
    with pytest.raises(warden_protocol.Refused, match=f"is not one of user {USER}'s own"):
        agent.do(ask_to_plug, "fabric")
    with inside(host.namespace), Peer(0) as root:
        theirs = f"/proc/{root.pid}/ns/net"
        moved = os.open(theirs, os.O_RDONLY)
        # What the agent could only have been given.
        with pytest.raises(warden_protocol.Refused, match="is not one of"):
            plugged_from_here(moved)
        os.close(moved)
    assert "moor17h" not in host.links()


def plugged_from_here(descriptor: int) -> None:
    """By the child alone, without a warden that asks who is calling."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        socket.send_fds(ours, [REQUEST], [descriptor])
        warden_protocol.outcome(plugging.plugged(theirs, saved(), "fabric"))


def test_only_the_agent(moored: Peer, placeholder: Peer, scope: Path, host: Host) -> None:
    placeholder.do(unshare, USERS | NETWORK)
    with Peer(USER, leaf(scope, "job_17", "step_1", "task_0")) as other:
        other.do(unshare, USERS | NETWORK)
        for peer in (placeholder, other):
            with pytest.raises(warden_protocol.Refused, match="only the agent of this job"):
                peer.do(ask_to_plug, "fabric")
    assert "moor17h" not in host.links()


def test_not_before_it_is_one_nor_after_its_end(
    running: Manager, agent: Peer, placeholder: Peer, tasks: tuple[Path, Path]
) -> None:
    with pytest.raises(warden_protocol.Refused, match="only the agent of this job"):
        agent.do(ask_to_plug, "fabric")
    tree = delegated(agent, placeholder)
    agent.kill()
    await_gone(tree)
    with Peer(USER, tasks[0]) as late, pytest.raises(warden_protocol.Refused, match="only the agent of this job"):
        late.do(ask_to_plug, "fabric")


def test_a_job_without_networks(manager: Manager, agent: Peer, placeholder: Peer) -> None:
    delegated(agent, placeholder)
    with pytest.raises(warden_protocol.Refused, match="this job has no network to plug"):
        agent.do(ask_to_plug, "fabric")


def test_a_job_with_the_other_one(moored: Peer, running: Manager, host: Host) -> None:
    saved().changed(gateway=None)
    with inside(host.namespace):
        running.kill()
        running.start()
    with pytest.raises(warden_protocol.Refused, match="this job has no uplink to plug"):
        moored.do(ask_to_plug, "uplink")


def test_not_as_often_as_he_likes(moored: Peer, running: Manager) -> None:
    """Each time all that watch this node's packet filter have to look at it, such as the wardens of other jobs."""
    for _ in range(plugging.MOST_PLUGS):
        moored.do(ask_to_plug, "fabric")
    with pytest.raises(warden_protocol.Refused, match="too often"):
        moored.do(ask_to_plug, "uplink")


def test_a_name_that_is_taken_there(moored: Peer) -> None:
    moored.do(taking, "uplink0")
    with pytest.raises(warden_protocol.Refused, match="a link uplink0 in the job's network already"):
        moored.do(ask_to_plug, "uplink")


def taking(name: str) -> None:
    """For a Peer."""
    with IPRoute() as ip:
        ip.link("add", ifname=name, kind="bridge")


def test_a_file_that_cannot_even_be_closed(
    networked: None, host: Host, agent: Peer, placeholder: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own server decides how long that takes; the warden goes on, and so does the end of the job."""
    monkeypatch.setattr(plugging, "TIMEOUT", 0.5)
    place = Path("/run/hung")
    place.touch()
    with inside(host.namespace), Manager() as manager, hung_mount(place, USER):
        tree = delegated(agent, placeholder)
        assert "does not respond" in refused(agent.do(send_descriptors, REQUEST, str(place)))
        (child,) = Path(f"/proc/{manager.pid}/task/{manager.pid}/children").read_text().split()
        await_blocked(int(child))
        with pytest.raises(warden_protocol.Refused, match="ask again"):
            agent.do(ask_to_plug, "fabric")
        agent.kill()
        await_gone(tree)
        manager.stop()
        lock.take(JOB.id, 0).release()
        assert Process.of(int(child)).alive, "nothing was left to wait for"


def test_a_flush_of_all_rules_is_mended(moored: Peer, host: Host) -> None:
    for what in warden_protocol.PLUGGED:
        moored.do(ask_to_plug, what)
    flush(host)
    await_same(lambda: intact(host), True)
    await_same(lambda: [is_up(host, name) for name in ("moor17v", "moor17u")], [True, True])


def test_one_while_there_was_no_warden(moored: Peer, running: Manager, host: Host) -> None:
    moored.do(ask_to_plug, "uplink")
    running.kill()
    flush(host)
    assert not intact(host)
    with inside(host.namespace):
        running.start()
    assert intact(host)


def intact(host: Host) -> bool:
    state = saved()
    assert state.fabric
    assert state.gateway
    with inside(host.namespace):
        return fabric.intact(state.fabric) and gateway.intact(state.gateway)


def is_up(host: Host, name: str) -> bool:
    (link,) = host.ip.link("get", index=host.index(name))
    return bool(link["flags"] & 1)


def test_the_child_has_nothing_of_the_wardens() -> None:
    """Whatever numbers the two had that it keeps."""
    reading, writing = os.pipe()
    with socket.socket() as stream:
        if not (child := os.fork()):
            plugging.keep_only(stream.fileno(), writing)
            # The last one is that of the directory itself.
            there = sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
            os.write(plugging.ANSWER, bytes(there))
            os._exit(0)
        os.waitpid(child, 0)
    *standard, kept, other, _ = os.read(reading, 100)
    assert (kept, other) == (plugging.STREAM, plugging.ANSWER)
    assert set(standard) <= {0, 1, 2}
    os.close(reading)
    os.close(writing)
