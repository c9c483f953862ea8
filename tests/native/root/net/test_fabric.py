"""The fabric of a job between hosts: what it carries, what it does not, and what is left of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from moorage.common.errors import MoorageError, Taken, UserError
from moorage.linux import nft
from moorage.root.net import fabric
from moorage.root.net.fabric import Fabric, Site
from support.frames import ALL, answers_for, asks_for
from support.hosts import CABLE, Host, arrives, bare_host
from support.namespaces import inside
from support.segments import PLUG, PORT, SITE, Node, joined, left

MANY = 1000
# SO_RCVBUFFORCE, which Python does not name.
RECEIVE_BUFFER = 33


def heard(ears: socket.socket) -> Iterator[bytes]:
    """All frames until there are no more for a while."""
    with suppress(TimeoutError):
        while True:
            yield ears.recv(2000)


def test_it_carries_datagrams_both_ways(nodes: list[Node]) -> None:
    first, second = nodes
    with first.listening() as here, second.listening() as there:
        assert arrives(here, there)
        assert arrives(there, here)


def test_it_carries_connections(nodes: list[Node]) -> None:
    first, second = nodes
    with second.inner.tcp(second.segment_address, PORT) as server, first.inner.tcp() as client:
        server.listen()
        client.connect((second.segment_address, PORT))
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"x" * 300000)
            received = 0
            while received < 300000:
                received += len(accepted.recv(1 << 16))


def test_packets_as_large_as_it_says_pass_whole(nodes: list[Node]) -> None:
    first, second = nodes
    with first.listening() as here, second.listening() as there:
        whole = bytes(first.fabric.mtu - 28)
        here.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: never in pieces
        here.sendto(whole, (second.segment_address, PORT))
        assert there.recv(2000) == whole
        with pytest.raises(OSError, match="Message too long"):
            here.sendto(whole + b"x", (second.segment_address, PORT))


def test_three_hosts_and_each_frame_goes_to_its_own(hosts: list[Host]) -> None:
    with joined(hosts) as nodes:
        first, second, third = nodes
        with first.listening() as one, second.listening() as two, third.listening() as three:
            assert arrives(one, two)
            assert arrives(one, three)
            assert arrives(two, three)
            with third.sniffer() as ears:
                for _ in range(10):
                    assert arrives(one, two)
                assert not any(b"moored" in frame for frame in heard(ears))
            assert arrives(one, three)


def test_frames_for_an_address_that_nobody_has_announced_go_to_all(hosts: list[Host]) -> None:
    with joined(hosts) as nodes:
        first, second, _ = nodes
        second.inner.ip.link("set", index=second.inner.index(PLUG), address="02:00:00:00:00:99")
        with first.listening() as one, second.listening() as two:
            assert arrives(one, two)


def test_nothing_is_learnt_and_nothing_can_be_added(nodes: list[Node]) -> None:
    first, second = nodes

    def known() -> set[str]:
        entries = first.host.ip.fdb("dump", ifindex=first.host.index("moor17v"))
        return {entry.get_attr("NDA_LLADDR") for entry in entries if entry.get_attr("NDA_DST")}

    before = known()
    assert before == {"00:00:00:00:00:00", second.own_hardware_address}
    with first.listening() as here, second.listening() as there:
        for number in range(3):
            address = f"02:00:00:00:01:{number:02x}"
            second.inner.ip.link("set", index=second.inner.index(PLUG), address=address)
            assert arrives(there, here)
    assert known() == before
    with pytest.raises(NetlinkError, match="No space left"):
        first.host.ip.fdb(
            "add", ifindex=first.host.index("moor17v"), lladdr="02:00:00:00:00:01", dst=str(second.host.address)
        )


def test_broadcasts_are_bounded_and_nothing_else_is(hosts: list[Host]) -> None:
    with joined(hosts[:2], site=Site(flood=50)) as nodes:
        first, second = nodes
        with first.listening() as here, second.inner.udp("", PORT) as there:
            there.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER, 1 << 24)
            here.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            for _ in range(MANY):
                here.sendto(b"for all", ("10.200.0.255", PORT))
            for _ in range(MANY):
                here.sendto(b"for one", (second.segment_address, PORT))
            here.sendto(b"end", (second.segment_address, PORT))
            received = list(iter(lambda: there.recv(100), b"end"))
        assert received.count(b"for one") == MANY
        # As many as a second may have, at once, less what the job's own kernel says; and what came due meanwhile.
        assert 40 <= received.count(b"for all") < MANY / 4


def test_large_ones_are_bounded_by_their_size(hosts: list[Host]) -> None:
    """The kernel cuts them late: they are one frame for who counts frames."""
    cut_into = 103
    with joined(hosts[:2], site=Site(flood=50)) as nodes:
        first, second = nodes
        with first.listening() as here, second.inner.udp("", PORT) as there:
            there.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER, 1 << 24)
            here.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            here.setsockopt(socket.IPPROTO_UDP, cut_into, 1000)
            for _ in range(40):
                here.sendto(bytes(60000), ("10.200.0.255", PORT))
            here.sendto(b"end", (second.segment_address, PORT))
            received = len(list(iter(lambda: there.recv(2000), b"end")))
        assert 50 <= received < 40 * 60 / 4


def test_frames_that_go_to_all_for_want_of_an_address_are_bounded_too(hosts: list[Host]) -> None:
    with joined(hosts, site=Site(flood=50)) as nodes:
        first, second, third = nodes
        with first.listening() as here, second.listening() as there, third.sniffer() as ears:
            there.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER, 1 << 24)
            for _ in range(MANY):
                here.sendto(b"known", (second.segment_address, PORT))
            here.sendto(b"end", (second.segment_address, PORT))
            assert list(iter(lambda: there.recv(100), b"end")).count(b"known") == MANY
            index = first.inner.index(PLUG)
            for number, address in enumerate(("02:00:00:00:00:99", first.own_hardware_address), 70):
                target = f"10.200.0.{number}"
                first.inner.ip.neigh("add", dst=target, lladdr=address, ifindex=index)
                for _ in range(MANY):
                    here.sendto(b"nobody's", (target, PORT))
            assert 0 < sum(b"nobody's" in frame for frame in heard(ears)) < MANY / 4


def test_two_jobs_with_the_same_addresses_side_by_side(hosts: list[Host]) -> None:
    with joined(hosts[:2], 17) as ours, joined(hosts[:2], 18) as theirs:
        with ours[0].listening() as here, ours[1].listening() as there, theirs[1].listening() as elsewhere:
            here.sendto(b"ours", (ours[1].segment_address, PORT))
            assert there.recv(100) == b"ours"
            with theirs[0].listening() as other:
                other.sendto(b"theirs", (theirs[1].segment_address, PORT))
                # The first that arrives with the other job is its own.
                assert elsewhere.recv(100) == b"theirs"
        for node in ours:
            with inside(node.host.namespace):
                fabric.remove(17)
        with theirs[0].listening() as here, theirs[1].listening() as there:
            assert arrives(here, there), "the end of one job is no matter of the other's"


@pytest.mark.parametrize("group", [ALL, *(bytes.fromhex(f"0180c200000{number:x}") for number in range(16))])
def test_this_nodes_own_stack_takes_no_part(nodes: list[Node], group: bytes) -> None:
    """Neither while the rules are there nor when somebody has flushed them; the bridge sees to that."""
    first, _ = nodes
    question = asks_for(str(first.host.address), first.segment_address, group)
    with inside(first.host.namespace):
        for name in ("all", "moor17h"):
            Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0")
    with first.sniffer() as ears, inside(first.host.namespace):

        def answered() -> bool:
            ears.send(question)
            try:
                while not answers_for(ears.recv(2000), str(first.host.address)):
                    pass
            except TimeoutError:
                return False
            return True

        assert not answered()
        nft.remove(nft.Table(nft.NETDEV, "moorage-17"))
        assert not answered()
        first.host.ip.link("set", index=first.host.index("moor17h"), master=0)
        first.host.ip.link("set", index=first.host.index("moor17h"), state="up")
        assert answered(), "without the bridge it would, or this test shows nothing"


def test_this_node_says_nothing_in_the_segment(hosts: list[Host]) -> None:
    with inside(hosts[0].namespace):
        Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")
    with joined(hosts[:2]) as nodes, nodes[1].sniffer() as ears:
        first = hosts[0]
        first.ip.link("set", index=first.index("moor17v"), state="down")
        first.ip.link("set", index=first.index("moor17v"), state="up")
        senders = {frame[6:12].hex(":") for frame in heard(ears)}
        assert senders <= {node.own_hardware_address for node in nodes}


def test_plugged_again_after_the_jobs_network_has_gone(hosts: list[Host]) -> None:
    """It lives from the first container to the last."""
    with joined(hosts[:2]) as (first, second):
        with bare_host() as successor:
            again = Node(first.host, first.fabric, successor)
            again.plug()
            assert PLUG not in first.inner.links()
            with again.listening() as here, second.listening() as there:
                assert arrives(here, there)
                assert arrives(there, here)
        # With the network its end has gone, and the host's with it.
        assert first.host.loses("moor17h")
        first.plug()
        with first.listening() as here, second.listening() as there:
            assert arrives(here, there)


def test_a_name_that_is_taken_in_the_jobs_network(nodes: list[Node]) -> None:
    first, _ = nodes
    first.inner.ip.link("add", ifname="mine", kind="bridge")
    with inside(first.host.namespace), pytest.raises(MoorageError) as refusal:
        fabric.plug(first.fabric, first.inner.namespace, "mine")
    assert str(refusal.value) == "there is a link mine in the job's network already"
    first.plug()


def test_what_the_user_does_to_his_end_is_no_matter(nodes: list[Node]) -> None:
    first, second = nodes
    first.inner.ip.link("del", index=first.inner.index(PLUG))
    with inside(first.host.namespace):
        assert fabric.intact(first.fabric)
        fabric.mend(first.fabric)
    first.plug()
    with first.listening() as here, second.listening() as there:
        assert arrives(there, here)


class TestNothingIsLeft:
    def test_after_its_end(self, nodes: list[Node]) -> None:
        for node in nodes:
            assert left(node.host)
            with inside(node.host.namespace):
                fabric.remove(17)
            assert left(node.host) == []
            assert PLUG not in node.inner.links()
            with inside(node.host.namespace):
                fabric.remove(17)
            assert left(node.host) == []

    def test_whatever_was_left_of_it(self, nodes: list[Node]) -> None:
        first, second = nodes
        first.host.ip.link("del", index=first.host.index("moor17s"))
        second.host.ip.link("del", index=second.host.index("moor17v"))
        for node in nodes:
            with inside(node.host.namespace):
                fabric.remove(17)
            assert left(node.host) == []

    def test_where_there_was_nothing(self, hosts: list[Host]) -> None:
        with inside(hosts[0].namespace):
            fabric.remove(17)
        assert left(hosts[0]) == []

    def test_when_the_jobs_network_number_is_in_use(self, hosts: list[Host]) -> None:
        with joined(hosts[:2], 17) as nodes:
            before = left(hosts[0])
            other = Fabric.of(17 + (1 << 24), CABLE, 1500, [host.address for host in hosts[:2]], 0, SITE)
            with inside(hosts[0].namespace), pytest.MonkeyPatch.context() as patched:
                # Not for a moment the second one's guard, which drops what comes from the first one's peers.
                patched.setattr(nft, "install", lambda *_: pytest.fail("rules were installed"))
                with pytest.raises(Taken) as refusal:
                    fabric.make(other, SITE)
            assert refusal.value.what == "network 17, which job 16777233 gets by its number, is in use on this node"
            assert left(hosts[0]) == before
            with nodes[0].listening() as here, nodes[1].listening() as there:
                assert arrives(here, there)

    def test_when_there_is_one_of_an_earlier_run(self, nodes: list[Node]) -> None:
        before = left(nodes[0].host)
        with inside(nodes[0].host.namespace), pytest.raises(MoorageError, match="left by an earlier run of job 17"):
            fabric.make(nodes[0].fabric, SITE)
        assert left(nodes[0].host) == before

    def test_when_the_port_is_taken(self, hosts: list[Host]) -> None:
        planned = Fabric.of(17, CABLE, 1500, [host.address for host in hosts[:2]], 0, SITE)
        with hosts[0].udp("0.0.0.0", SITE.port):  # noqa: S104 - as whoever takes it would
            with inside(hosts[0].namespace), pytest.raises(UserError) as refusal:
                fabric.make(planned, SITE)
            assert refusal.value.what == "UDP port 339, the fabric's, is in use on this node"
        assert left(hosts[0]) == []

    def test_when_the_interface_is_gone(self, hosts: list[Host]) -> None:
        planned = Fabric.of(17, "ib7", 1500, [host.address for host in hosts[:2]], 0, SITE)
        with inside(hosts[0].namespace), pytest.raises(MoorageError, match="there is no link ib7 on this node"):
            fabric.make(planned, SITE)
        assert left(hosts[0]) == []


@pytest.mark.parametrize(
    ("first", "site"),
    [(339, SITE), (1023, SITE), (600, Site(339, (500, 600))), (1024, Site(1024)), (1024, Site(339, (600, 1024)))],
)
def test_ports_that_everybody_may_use_are_refused(hosts: list[Host], first: int, site: Site) -> None:
    with inside(hosts[0].namespace):
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text(str(first))
        with pytest.raises(
            UserError, match=f", and ports from {first} up are open to unprivileged users: choose lower ones"
        ):
            fabric.make(Fabric.of(17, CABLE, 1500, [IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")], 0, site), site)
    assert left(hosts[0]) == []


def test_a_fabric_of_all_the_hosts_there_may_be(hosts: list[Host]) -> None:
    addresses = [hosts[0].address + number for number in range(254)]
    with inside(hosts[0].namespace):
        planned = Fabric.of(17, CABLE, 1500, addresses, 0, SITE)
        fabric.make(planned, SITE)
        assert fabric.intact(planned)
        entries = hosts[0].ip.fdb("dump", ifindex=hosts[0].index("moor17v"))
        assert len({entry.get_attr("NDA_LLADDR") for entry in entries if entry.get_attr("NDA_DST")}) == 254
