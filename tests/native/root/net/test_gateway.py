"""The node as a job's gateway: what gets out and as whom, what does not, and what is left of it."""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from moorage.common.errors import MoorageError, UserError
from moorage.linux import conntrack, nft, nft_expressions
from moorage.linux.links import WARY
from moorage.node import network_demands
from moorage.root.net import fabric, gateway, job_networks
from moorage.root.net.fabric import Site as Fabrics
from moorage.root.net.gateway import Gateway, Site
from moorage.root.net.rule_watch import Kept, Watch
from support.frames import answers_for, asks_for, checked, udp
from support.hosts import CABLE, Host, arrives, bare_host
from support.namespaces import inside
from support.segments import FORGED, Node, flush, left, only_the_genuine_arrives

PLUG = "uplink"
PORT = 5000
FABRICS = Fabrics()


@dataclass(frozen=True)
class Job:
    """What a job has on the node: its network, and how that reaches the outside."""

    node: Host
    gateway: Gateway
    inner: Host

    @property
    def address(self) -> str:
        return str(self.gateway.inner.ip)

    def plug(self) -> None:
        with inside(self.node.namespace):
            gateway.plug(self.gateway, self.inner.namespace, PLUG)
        # The rest is the user's own to do.
        self.inner.up(PLUG, self.address, self.gateway.network.prefixlen)
        self.inner.ip.route("add", dst="default", gateway=str(self.gateway.outer.ip))


@contextmanager
def moored(node: Host, number: int = 17, site: Site | None = None) -> Iterator[Job]:
    with bare_host() as inner, inside(node.namespace):
        planned = Gateway.of(number, FABRICS.port, site or Site())
        job = Job(node, planned, inner)
        gateway.make(planned)
        job.plug()
        yield job


def forwarding(host: Host, switch: str = "1") -> None:
    with inside(host.namespace):
        Path("/proc/sys/net/ipv4/ip_forward").write_text(switch)


@pytest.fixture
def node(hosts: list[Host]) -> Host:
    """The first host, which the site has made a router; the second is the outside."""
    forwarding(hosts[0])
    hosts[0].ip.route("add", dst="default", gateway=str(hosts[1].address))
    return hosts[0]


@pytest.fixture
def outside(hosts: list[Host]) -> Host:
    return hosts[1]


@pytest.fixture
def job(node: Host) -> Iterator[Job]:
    with moored(node) as job:
        yield job


def connects(client: socket.socket, host: str, port: int = PORT) -> bool:
    try:
        client.connect((host, port))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("port", [0, 1023, 1024, 65535])
def test_connections_leave_with_the_nodes_address(job: Job, outside: Host, port: int) -> None:
    with outside.tcp(str(outside.address), PORT) as server, job.inner.tcp(port=port) as client:
        server.listen()
        client.connect(server.getsockname())
        accepted, (address, seen) = server.accept()
        with accepted:
            assert address == str(job.node.address)
            assert seen >= network_demands.JOBS_PORTS[0]
            accepted.sendall(b"welcome")
            assert client.recv(100) == b"welcome"


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_privileged_source_ports_arrive_as_others(job: Job, outside: Host, kind: socket.SocketKind) -> None:
    """Else what is root in its own namespace could pose as an NFS client of the node, or as a peer of a fabric."""
    if kind == socket.SOCK_DGRAM:
        with outside.udp(str(outside.address), PORT) as server, job.inner.udp("", 700) as client:
            client.sendto(b"moored", server.getsockname())
            _, (address, seen) = server.recvfrom(100)
            server.sendto(b"answer", (address, seen))
            assert client.recv(100) == b"answer"
    else:
        with outside.tcp(str(outside.address), PORT) as server, job.inner.tcp("", 700) as client:
            server.listen()
            client.connect(server.getsockname())
            accepted, (address, seen) = server.accept()
            accepted.close()
    assert address == str(job.node.address)
    assert seen >= 1024


@pytest.mark.parametrize("service", [6818, 61500])
def test_what_others_send_to_a_service_of_the_node_the_job_does_not_get(job: Job, outside: Host, service: int) -> None:
    """It has sent to where that comes from, with the service's port for a source port, as if it had asked for it.

    Also where that port is one of those that jobs' packets leave from: which one of these, nobody can choose.
    """
    with outside.udp(str(outside.address), PORT) as stranger, job.inner.udp("", service, 0.3) as ears:
        ears.sendto(b"moored", stranger.getsockname())
        assert stranger.recv(100) == b"moored"
        with job.node.udp(str(job.node.address), service) as served:
            assert arrives(stranger, served)
        with pytest.raises(TimeoutError):
            ears.recv(100)


def test_a_node_whose_own_programs_use_the_jobs_ports_refuses(node: Host) -> None:
    with inside(node.namespace):
        network_demands.NODES_PORTS.write_text("1024 61000")
        with pytest.raises(UserError) as refusal:
            Gateway.of(17, FABRICS.port, Site())
    assert str(refusal.value) == (
        "this node's own programs use ports 1024-61000, and the uplink kernel 61000-65535:"
        " have net.ipv4.ip_local_port_range end below, or take kernel out of uplink.allowed"
    )


def test_a_node_that_believes_all_senders_refuses(node: Host) -> None:
    """A link's own setting counts only where it is the larger one."""
    with inside(node.namespace):
        network_demands.OF_ALL_LINKS.write_text("2")
        with pytest.raises(
            UserError, match=r"all\.rp_filter=2 has this node believe all senders, .*: set it to 0 or 1"
        ):
            Gateway.of(17, FABRICS.port, Site())


def test_nobody_can_pose_as_a_peer_of_a_fabric(job: Job, outside: Host) -> None:
    with outside.udp(str(outside.address), FABRICS.port, 0.5) as fabric, job.inner.udp("", 700) as client:
        assert not arrives(client, fabric)
        with outside.udp(str(outside.address), FABRICS.port + 1) as other:
            assert arrives(client, other), "it must be the port that makes the difference"


def test_frames_forged_in_a_container_do_not_arrive(job: Job, nodes: list[Node]) -> None:
    """The node is one of another job's as well: its own address is a peer's."""
    with nodes[1].listening() as ears, job.inner.udp("", 700) as client:
        client.sendto(nodes[1].forged(FORGED), (str(nodes[1].host.address), FABRICS.port))
        only_the_genuine_arrives(nodes, ears)


def test_the_node_itself_is_out_of_reach(job: Job) -> None:
    addresses = {str(job.node.address), str(job.gateway.outer.ip)}
    with job.node.tcp("0.0.0.0", PORT) as server, job.node.udp("0.0.0.0", PORT, 0.3) as datagrams:  # noqa: S104
        server.listen()
        with job.node.tcp() as local:
            assert connects(local, str(job.node.address)), "it must be there to be out of reach"
        for address in addresses:
            with job.inner.tcp(limit=0.3) as client, job.inner.udp() as sender:
                assert not connects(client, address)
                assert not arrives(sender, datagrams, (address, PORT))


def test_nor_is_it_reached_where_the_site_leads_what_comes_to_it(job: Job, hosts: list[Host]) -> None:
    """As root's Docker does with the ports that it has published: what they lead to is for the node's friends."""
    behind, outside = hosts[2], hosts[1]
    with inside(job.node.namespace):
        nft.install(leading(PORT, behind.address))
    with behind.udp(str(behind.address), PORT) as ears, outside.udp() as friend, job.inner.udp() as sender:
        assert arrives(friend, ears, (str(job.node.address), PORT)), "it must be led to be kept from there"
        ears.settimeout(0.3)
        for address in (job.node.address, job.gateway.outer.ip):
            assert not arrives(sender, ears, (str(address), PORT))


def leading(port: int, to: IPv4Address) -> nft.Table:
    """A site's rule for what comes to the port, by whichever address."""
    translation = nft_expressions._expression("nat", type=1, family=nft.IPV4, reg_addr_min=1)
    rule = [
        *nft_expressions.protocol(17),
        *nft_expressions.target_port(port),
        nft_expressions._immediate(1, to.packed),
        translation,
    ]
    return nft.Table(nft.INET, "site", [nft.Chain("lead", "prerouting", -100, [rule], kind="nat")])


def test_so_is_what_the_site_lists(hosts: list[Host], node: Host) -> None:
    site = Site(refused=(IPv4Network("198.51.100.0/24"), IPv4Network(f"{hosts[2].address}/32")))
    with moored(node, site=site) as job:
        for number, allowed in ((1, True), (2, False)):
            server = hosts[number]
            with server.udp(str(server.address), PORT, 5 if allowed else 0.3) as ears, job.inner.udp() as client:
                assert arrives(client, ears) is allowed


def test_nobody_reaches_into_the_job(job: Job, outside: Host) -> None:
    outside.ip.route("add", dst=str(job.gateway.network), gateway=str(job.node.address))
    with job.inner.udp("0.0.0.0", PORT, 0.3) as ears, job.inner.tcp("0.0.0.0", PORT) as server:  # noqa: S104
        server.listen()
        for stranger in (outside, job.node):
            with stranger.udp() as sender, stranger.tcp(limit=0.3) as client:
                with suppress(PermissionError):
                    assert not arrives(sender, ears, (job.address, PORT))
                assert not connects(client, job.address)


def test_two_jobs_cannot_reach_each_other(node: Host, outside: Host) -> None:
    with moored(node, 17) as ours, moored(node, 18) as theirs:
        assert ours.gateway.network != theirs.gateway.network
        for here, there in ((ours, theirs), (theirs, ours)):
            with there.inner.udp("0.0.0.0", PORT, 0.3) as ears, here.inner.udp() as sender:  # noqa: S104
                assert not arrives(sender, ears, (there.address, PORT))
        with outside.udp(str(outside.address), PORT) as ears:
            for job in (ours, theirs):
                with job.inner.udp() as sender:
                    assert arrives(sender, ears)


def test_nobody_sends_as_somebody_else(job: Job, outside: Host) -> None:
    job.inner.ip.addr("add", index=job.inner.index(PLUG), address="203.0.113.7", prefixlen=32)
    with outside.udp(str(outside.address), PORT, 0.3) as ears, job.inner.udp() as sender:
        # First of all: with the other address the node's would not even be found.
        assert arrives(sender, ears)
        with job.inner.udp("203.0.113.7") as forger:
            assert not arrives(forger, ears)
        assert arrives(sender, ears)


def test_other_protocols_do_not_get_out(job: Job, outside: Host) -> None:
    """They would leave with the job's own address, which nobody translates."""
    generic_routing = 47

    def send_from(host: Host) -> None:
        with inside(host.namespace), socket.socket(socket.AF_INET, socket.SOCK_RAW, generic_routing) as sender:
            sender.sendto(b"moored", (str(outside.address), 0))

    with inside(outside.namespace):
        ears = socket.socket(socket.AF_INET, socket.SOCK_RAW, generic_routing)
    with ears:
        ears.settimeout(5)
        send_from(job.inner)
        send_from(job.node)
        _, (address, _) = ears.recvfrom(100)
        assert address == str(job.node.address)
        ears.settimeout(0.3)
        with pytest.raises(TimeoutError):
            ears.recv(100)


def test_what_belongs_to_no_connection_does_not_get_out(job: Job, outside: Host) -> None:
    """It would leave untranslated: nobody can have caused that error, and nobody has sent what these bytes reset."""
    quoted = udp(str(outside.address), "203.0.113.7", 53, b"", PORT)
    error = checked(b"\3\4\0\0\0\0\2\x58" + quoted)
    with inside(outside.namespace):
        ears = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with ears:
        ears.settimeout(5)
        for host, limit in ((job.node, 5), (job.inner, 0.3)):
            ears.settimeout(limit)
            with inside(host.namespace), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sender:
                sender.sendto(error, (str(outside.address), 0))
            if host is job.node:
                assert ears.recv(1000)[20:] == error
            else:
                with pytest.raises(TimeoutError):
                    ears.recv(1000)


def test_a_ping_gets_out_and_back(job: Job, outside: Host) -> None:
    request = bytes.fromhex("0800f7fd00010001")
    with inside(job.inner.namespace), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as pinger:
        pinger.settimeout(5)
        pinger.sendto(request, (str(outside.address), 0))
        answer, (address, _) = pinger.recvfrom(100)
        assert address == str(outside.address)
        assert answer[20:22] == b"\0\0"


def test_a_link_that_is_mended_is_wary(job: Job) -> None:
    """Its plugging may have ended before that was done."""
    settings = [Path("/proc/sys/net") / name.format(job.gateway.host_end) for name in WARY]
    with inside(job.node.namespace):
        for setting in settings:
            setting.write_text("0")
        gateway.mend(job.gateway)
        assert [setting.read_text().strip() for setting in settings] == list(WARY.values())


def test_connections_that_have_ended_are_bounded_too(node: Host, outside: Host) -> None:
    most = 5
    with outside.tcp(str(outside.address), PORT, 0.5) as server, moored(node, site=Site(connections=most)) as job:
        server.listen()
        for _ in range(5 * most):
            with job.inner.tcp(limit=0.2) as client, suppress(TimeoutError):
                client.connect(server.getsockname())
                server.accept()[0].close()
        assert known(job) <= 2 * most


def test_connections_are_bounded(node: Host, outside: Host) -> None:
    most = 5
    with moored(node, site=Site(connections=most)) as job, outside.udp(str(outside.address), PORT, 0.3) as ears:
        through = 0
        for _ in range(2 * most):
            with job.inner.udp() as sender:
                through += arrives(sender, ears)
        assert through == most


def known(job: Job) -> int:
    """Connections of the job's that its node knows of."""
    with inside(job.node.namespace):
        return len(conntrack.begun_by(job.gateway.inner.ip))


def test_plugging_again_gives_no_more_connections(node: Host, outside: Host) -> None:
    most = 5
    with moored(node, site=Site(connections=most)) as job, outside.udp(str(outside.address), PORT, 0.3) as ears:
        for _ in range(2):
            for _ in range(most + 1):
                with job.inner.udp() as sender:
                    arrives(sender, ears)
            assert known(job) == most
            job.plug()
            assert known(job) == 0


def test_answers_to_one_job_do_not_come_to_the_next(node: Host, outside: Host) -> None:
    """It has the first one's network, and the other side goes on sending."""
    site = Site(pool=IPv4Network("100.96.0.0/30"))
    with outside.udp(str(outside.address), PORT) as stranger:
        with moored(node, 17, site) as job, job.inner.udp("", PORT) as first:
            first.sendto(b"moored", stranger.getsockname())
            _, place = stranger.recvfrom(100)
            assert arrives(stranger, first, place), "it must be let in once"
        with inside(node.namespace):
            gateway.remove(17)
        with moored(node, 18, site) as job, job.inner.udp("", PORT, 0.3) as second:
            assert job.gateway.network == site.pool
            assert not arrives(stranger, second, place)


def test_nothing_is_known_of_a_connection_of_the_last_job(node: Host, outside: Host) -> None:
    site = Site(pool=IPv4Network("100.96.0.0/30"))
    with outside.tcp(str(outside.address), PORT) as server:
        server.listen()
        with moored(node, 17, site) as job, job.inner.tcp() as client:
            client.connect(server.getsockname())
            assert known(job) == 1
    with inside(node.namespace):
        gateway.remove(17)
    with moored(node, 18, site) as job:
        assert known(job) == 0


def test_two_jobs_have_no_network_in_common(node: Host, outside: Host) -> None:
    """The second has chosen while the first, for a moment or by intent, was not plugged."""
    pool = Site(pool=IPv4Network("100.96.0.0/30"))
    with moored(node, 17, pool) as job, bare_host() as other:
        job.inner.ip.link("del", index=job.inner.index(PLUG))
        assert node.loses("moor17u")
        with inside(node.namespace):
            second = Gateway.of(18, FABRICS.port, pool)
            gateway.make(second)
        job.plug()
        with outside.udp(str(outside.address), PORT) as ears, job.inner.udp() as sender:
            assert arrives(sender, ears)
        with inside(node.namespace), pytest.raises(MoorageError) as refusal:
            gateway.plug(second, other.namespace, PLUG)
        assert known(job) == 1, "it must be no way to end another's"
        assert str(refusal.value) == "the network of job 18, 100.96.0.0/30, is another's by now"
        assert "moor18u" not in node.links()
        with inside(node.namespace):
            gateway.remove(18)


def test_a_job_cannot_be_many_neighbours(job: Job) -> None:
    """The node has one table of them, for all its networks."""

    def known() -> set[str]:
        neighbours = job.node.ip.get_neighbours(ifindex=job.node.index("moor17u"))
        return {neighbour.get_attr("NDA_DST") for neighbour in neighbours}

    with inside(job.inner.namespace):
        ears = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    with ears:
        ears.bind((PLUG, 0))
        for sender in ("100.96.77.7", "198.51.100.7", job.address):
            ears.send(asks_for(str(job.gateway.outer.ip), sender))
        ears.settimeout(5)
        while not answers_for(ears.recv(2000), str(job.gateway.outer.ip)):
            pass
    assert {address for address in known() if address and ":" not in address} == {job.address}


def test_the_node_takes_nothing_of_ipv6_from_a_job(job: Job) -> None:
    """Not even a way out, which who announces himself as a router would become, while the rules are flushed."""
    with inside(job.node.namespace):
        assert Path("/proc/sys/net/ipv6/conf/moor17u/disable_ipv6").read_text() == "1\n"


def test_a_node_that_is_no_router_refuses(node: Host) -> None:
    forwarding(node, "0")
    with inside(node.namespace), pytest.raises(UserError) as refusal:
        Gateway.of(17, FABRICS.port, Site())
    assert str(refusal.value) == (
        "this node does not forward packets, and the uplink kernel needs that:"
        " set net.ipv4.ip_forward=1, or take kernel out of uplink.allowed"
    )


def test_a_node_without_an_outside_refuses(hosts: list[Host]) -> None:
    forwarding(hosts[2])
    with inside(hosts[2].namespace), pytest.raises(MoorageError, match="this node has no default route"):
        Gateway.of(17, FABRICS.port, Site())


def test_the_jobs_network_is_none_that_the_node_has_a_route_to(node: Host) -> None:
    with inside(node.namespace):
        first = Gateway.of(17, FABRICS.port, Site())
        node.ip.route("add", dst=str(first.network.supernet(new_prefix=28)), gateway="192.0.2.2")
        second = Gateway.of(17, FABRICS.port, Site())
        assert not second.network.overlaps(first.network.supernet(new_prefix=28))
        node.ip.route("add", dst=str(Site().pool), gateway="192.0.2.2")
        with pytest.raises(UserError, match="this node has other routes there"):
            Gateway.of(17, FABRICS.port, Site())


def test_the_state_can_keep_it(node: Host) -> None:
    with inside(node.namespace):
        planned = Gateway.of(17, FABRICS.port, Site(refused=(IPv4Network("10.0.0.0/8"),)))
    assert Gateway.from_dict(json.loads(json.dumps(planned.as_dict()))) == planned


def test_rules_are_put_back_and_the_link_is_down_until_then(
    job: Job, outside: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[bool] = []

    def is_up() -> bool:
        (link,) = job.node.ip.link("get", index=job.node.index("moor17u"))
        return bool(link["flags"] & 1)

    def noting(*tables: nft.Table) -> None:
        states.append(is_up())
        install(*tables)

    install = nft.install
    monkeypatch.setattr(nft, "install", noting)
    with inside(job.node.namespace), selectors.DefaultSelector() as events:
        kept = Kept("gateway", lambda: gateway.intact(job.gateway), lambda: gateway.mend(job.gateway))
        watch = Watch([kept])
        events.register(watch, selectors.EVENT_READ)
        flush(job.node)
        assert events.select(10)
        assert watch.look() == ["gateway"]
        watch.close()
    assert (states, is_up()) == ([False], True)
    with outside.udp(str(outside.address), PORT) as server, job.inner.udp("", 700) as client:
        client.sendto(b"moored", server.getsockname())
        _, (address, seen) = server.recvfrom(100)
    assert (IPv4Address(address), seen >= 1024) == (job.node.address, True)


def test_plugged_again_after_the_jobs_network_has_gone(node: Host, outside: Host) -> None:
    with moored(node) as job:
        with bare_host() as successor:
            Job(node, job.gateway, successor).plug()
            assert PLUG not in job.inner.links()
            with outside.udp(str(outside.address), PORT) as ears, successor.udp() as sender:
                assert arrives(sender, ears)
        assert node.loses("moor17u")


def test_nothing_is_left(job: Job) -> None:
    assert left(job.node)
    with inside(job.node.namespace):
        gateway.remove(17)
        assert left(job.node) == []
        gateway.remove(17)
    assert left(job.node) == []
    assert job.node.links() == {"lo", CABLE}
    assert PLUG not in job.inner.links()


def test_what_cannot_be_removed_of_a_fabric_keeps_it_from_nothing(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_to(_: int) -> None:
        raise OSError("busy")

    monkeypatch.setattr(fabric, "remove", refuse_to)
    with inside(job.node.namespace), pytest.raises(OSError, match="busy"):
        job_networks.remove(17)
    assert left(job.node) == []
