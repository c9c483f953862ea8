"""The holder of a job's network, in a network namespace that stands for Podman's: real links and sockets."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import moorage
from moorage.common.description import Kubernetes, Mooring, Waits
from moorage.common.events import Watch
from moorage.common.podman import Places
from moorage.common.spec import Spec
from moorage.linux.links import Links
from moorage.user import messages
from moorage.user.messages import Forward, Gateway, HolderCommand, Namespace
from moorage.user.network import forward, holder, holder_client
from moorage.user.network.bridge import BRIDGE
from moorage.user.network.holder_client import HolderClient
from support.hosts import Host, bare_host
from support.namespaces import inside
from support.peers import Peer

LIMIT = 10.0
STRANGER = 54321
PACKAGE = Path(moorage.__file__).parents[1]
PROGRAM = f"import sys; sys.path.insert(0, {str(PACKAGE)!r}); from moorage.user.network.holder import main; main()"
GATEWAY = Gateway("100.96.0.2/30", "100.96.0.1")


class Holding:
    """A holder in a job's network, and the keeper's end of its connection; `root` is the node."""

    def __init__(self, inner: Host, root: Host) -> None:
        self.inner, self.root = inner, root
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.settimeout(LIMIT)
        with theirs, inside(inner.namespace):
            self.process = subprocess.Popen([sys.executable, "-Ic", PROGRAM], stdin=theirs.fileno())
        packet, (self.namespace,), _, _ = socket.recv_fds(self.connection, 4096, 1)
        assert messages.decode_holder_event(json.loads(packet)) == Namespace()

    def command(self, command: HolderCommand, *descriptors: int) -> None:
        socket.send_fds(self.connection, [json.dumps(messages.encode_command(command)).encode()], descriptors)

    def plug(self, name: str) -> None:
        """As the warden does it, by the descriptor alone."""
        links = Links(self.root.ip)
        links.remove([f"root-{name}"])
        links.set_up(links.plug(f"root-{name}", 1450, self.namespace, name))

    def make_bridge(self) -> int:
        """As Podman does with the first container of a network."""
        self.inner.ip.link("add", ifname=BRIDGE, kind="bridge")
        self.inner.up(BRIDGE)
        return self.inner.index(BRIDGE)

    def below(self, name: str, bridge: int) -> bool:
        def is_there() -> bool:
            if name not in self.inner.links():
                return False
            (link,) = self.inner.ip.link("get", ifname=name)
            return bool(link.get_attr("IFLA_MASTER") == bridge and link["state"] == "up")

        return soon(is_there)


def soon(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + LIMIT
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


@pytest.fixture
def holding() -> Iterator[Holding]:
    with bare_host() as inner, bare_host() as root:
        held = Holding(inner, root)
        yield held
        held.connection.close()
        assert held.process.wait(LIMIT) == 0
        os.close(held.namespace)


def test_it_is_the_namespace_it_runs_in(holding: Holding) -> None:
    assert os.fstat(holding.namespace).st_ino == os.fstat(holding.inner.namespace).st_ino


def test_frames_that_only_pass_the_bridge_go_through_no_rules(holding: Holding) -> None:
    settings = [holder.BRIDGES_RULES / name for name in holder.RULES]
    if not settings[0].exists():
        pytest.skip("br_netfilter is not loaded on this machine")

    def off() -> bool:
        with inside(holding.inner.namespace):
            return [setting.read_text() for setting in settings] == ["0\n"] * len(settings)

    assert soon(off)


class TestFabric:
    def test_it_comes_below_the_bridge_whichever_is_there_first(self, holding: Holding) -> None:
        bridge = holding.make_bridge()
        holding.plug("fabric0")
        assert holding.below("fabric0", bridge)

    def test_a_bridge_that_comes_later(self, holding: Holding) -> None:
        holding.plug("fabric0")
        assert holding.below("fabric0", holding.make_bridge())

    def test_a_bridge_that_is_made_anew(self, holding: Holding) -> None:
        """With its last container Podman may remove it."""
        holding.plug("fabric0")
        assert holding.below("fabric0", holding.make_bridge())
        holding.inner.ip.link("del", index=holding.inner.index(BRIDGE))
        assert holding.below("fabric0", holding.make_bridge())

    def test_an_end_that_is_plugged_again(self, holding: Holding) -> None:
        bridge = holding.make_bridge()
        for _ in range(3):
            holding.plug("fabric0")
            assert holding.below("fabric0", bridge)

    def test_it_has_nothing_to_do_once_that_is_done(self, holding: Holding) -> None:
        """What it does to a link it hears of, too."""
        holding.plug("fabric0")
        holding.below("fabric0", holding.make_bridge())
        before = cpu_time(holding.process.pid)
        time.sleep(0.5)
        assert cpu_time(holding.process.pid) - before < 0.1


class TestUplink:
    def test_it_gets_its_address_and_becomes_the_way_out(self, holding: Holding) -> None:
        holding.command(GATEWAY)
        for _ in range(2):
            holding.plug("uplink0")
            assert soon(lambda: ways_out(holding.inner) == ["100.96.0.1"])
            (address,) = holding.inner.ip.get_addr(family=socket.AF_INET, index=holding.inner.index("uplink0"))
            assert (address.get_attr("IFA_LOCAL"), address["prefixlen"]) == ("100.96.0.2", 30)

    def test_without_a_gateway_it_is_left_alone(self, holding: Holding) -> None:
        holding.plug("uplink0")
        holding.plug("fabric0")
        holding.below("fabric0", holding.make_bridge())
        assert ways_out(holding.inner) == []


class Fleeting(Links):
    """What a link is put below, or has just been set up, is gone at that moment."""

    def put_below(self, index: int, master: int) -> None:
        self.ip.link("del", index=master)
        super().put_below(index, master)

    def set_up(self, index: int) -> None:
        super().set_up(index)
        self.ip.link("del", index=index)


class TestWhatGoesAtTheWorstMoment:
    """Podman's bridge goes with its last container, and root may plug again: neither is the holder's end."""

    @pytest.fixture
    def inner(self) -> Iterator[Host]:
        with bare_host() as inner:
            inner.ip.link("add", ifname=BRIDGE, kind="bridge")
            inner.ip.link("add", ifname="fabric0", kind="veth", peer="uplink0")
            yield inner

    @pytest.fixture
    def here(self, inner: Host) -> Iterator[holder.Holder]:
        keeper, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with keeper, theirs, holder.link_changes() as changes, Watch() as watch:
            yield holder.Holder(theirs, Fleeting(inner.ip), changes, watch)

    def test_the_bridge(self, here: holder.Holder, inner: Host) -> None:
        here.connect()
        assert BRIDGE not in inner.links()

    def test_the_way_out(self, here: holder.Holder, inner: Host) -> None:
        inner.ip.link("del", index=inner.index(BRIDGE))
        here.gateway = GATEWAY
        here.connect()
        assert "uplink0" not in inner.links()


class TestForward:
    @pytest.fixture
    def container(self) -> Iterator[Host]:
        """Where the API can be reached, and nowhere else."""
        with bare_host() as container:
            yield container

    @pytest.fixture
    def server(self, container: Host) -> Iterator[socket.socket]:
        with closing(container.tcp("127.0.0.1", 0, LIMIT)) as server:
            server.listen()
            yield server

    @pytest.fixture
    def port(self, holding: Holding, container: Host, server: socket.socket) -> int:
        with socket.create_server(("127.0.0.1", 0)) as door, forward.kernel() as kernel:
            descriptors = door.fileno(), kernel.fileno(), container.namespace
            holding.command(Forward(*server.getsockname()), *descriptors)
            return int(door.getsockname()[1])

    def test_both_ways_to_the_end(self, port: int, server: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", port), LIMIT) as client, server.accept()[0] as inner:
            client.sendall(b"x" * (1 << 20))
            client.shutdown(socket.SHUT_WR)
            assert len(everything(inner)) == 1 << 20
            inner.sendall(b"y" * (1 << 20))
            inner.close()
            assert len(everything(client)) == 1 << 20

    def test_many_at_once(self, port: int, server: socket.socket) -> None:
        clients = [socket.create_connection(("127.0.0.1", port), LIMIT) for _ in range(20)]
        inners = [server.accept()[0] for _ in clients]
        for inner in inners:
            inner.sendall(b"hello")
            inner.close()
        assert [everything(client) for client in clients] == [b"hello"] * 20
        for client in clients:
            client.close()

    def test_strangers_are_hung_up_on_at_once_and_take_nobodys_place(self, port: int, server: socket.socket) -> None:
        """They may be as many as they like."""
        with Peer(STRANGER) as stranger:
            answers = stranger.do(answers_to_strangers, port, forward.MOST_CONNECTIONS + 1)
            with socket.create_connection(("127.0.0.1", port), LIMIT) as client, server.accept()[0] as inner:
                inner.sendall(b"hello")
                assert client.recv(5) == b"hello"
        assert answers == {b""}
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()

    def test_one_too_many_is_turned_away(self, port: int, server: socket.socket) -> None:
        """What each takes is the job's."""
        server.listen(2 * forward.MOST_CONNECTIONS)
        clients = [socket.create_connection(("127.0.0.1", port), LIMIT) for _ in range(forward.MOST_CONNECTIONS)]
        inners = [server.accept()[0] for _ in clients]
        with socket.create_connection(("127.0.0.1", port), LIMIT) as client:
            assert everything(client) == b""
        for one in (*clients, *inners):
            one.close()

    def test_no_place_is_kept_by_who_has_been_hung_up_on(self, port: int, server: socket.socket) -> None:
        """The API hangs up on a stranger who says nothing; he need not do so himself."""
        server.listen(2 * forward.MOST_CONNECTIONS)
        strangers = [socket.create_connection(("127.0.0.1", port), LIMIT) for _ in range(forward.MOST_CONNECTIONS)]
        for _ in strangers:
            server.accept()[0].close()
        for stranger in strangers:
            assert everything(stranger) == b""
        time.sleep(0.5)
        with socket.create_connection(("127.0.0.1", port), LIMIT) as client, server.accept()[0] as inner:
            inner.sendall(b"hello")
            assert client.recv(5) == b"hello"
        for stranger in strangers:
            stranger.close()

    def test_it_goes_on_where_a_moment_had_no_room_for_more(
        self, holding: Holding, port: int, server: socket.socket
    ) -> None:
        with socket.create_connection(("127.0.0.1", port), LIMIT):
            server.accept()[0].close()
        before = resource.prlimit(holding.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(holding.process.pid, resource.RLIMIT_NOFILE, (0, before[1]))
        with socket.create_connection(("127.0.0.1", port), LIMIT) as client:
            # It had a descriptor for this one already.
            assert everything(client) == b""
        resource.prlimit(holding.process.pid, resource.RLIMIT_NOFILE, before)
        with socket.create_connection(("127.0.0.1", port), LIMIT):
            server.accept()[0].close()

    def test_who_does_not_answer_is_no_answer(self, port: int, server: socket.socket) -> None:
        server.close()
        with socket.create_connection(("127.0.0.1", port), LIMIT) as client:
            assert everything(client) == b""

    def test_nothing_else_listens(self, port: int) -> None:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", port), LIMIT)


def test_the_next_holder_has_the_same_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind which nobody else can stand in between."""
    program = tmp_path / "podman"
    program.write_text('#!/bin/sh\nshift 2\nexec unshare --net "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(holder_client, "HOLDER", (sys.executable, "-Ic", PROGRAM))
    spec, handed = Spec(enabled=True, cluster="none"), list[int]()
    mooring = Mooring(17, 0, "node1", spec, program, "none", None, Waits(), Kubernetes(), Places(tmp_path))
    with bare_host() as container, inside(container.namespace):
        server = socket.create_server(("127.0.0.1", 0))
        server.settimeout(LIMIT)
        holder_of_job = HolderClient(mooring, handed.append)
        port = holder_of_job.forward("127.0.0.1", server.getsockname()[1], os.getpid())
        for number in range(1, 3):
            holder_of_job.receive()
            assert len(handed) == number
            with socket.create_connection(("127.0.0.1", port), LIMIT) as client, server.accept()[0] as inner:
                inner.sendall(b"hello")
                inner.close()
                assert everything(client) == b"hello"
            if number == 1:
                end(holder_of_job)
                holder_of_job.start_again()
        server.close()
    end(holder_of_job)
    holder_of_job.connection.close()
    for one in holder_of_job.forwardings:
        one.listener.close()
        os.close(one.namespace)


def end(client: HolderClient) -> None:
    client.process.kill()
    client.process.wait()
    while not client.gone:
        client.receive()


def answers_to_strangers(port: int, count: int) -> set[bytes]:
    """To one after the other, each of whom stays."""
    strangers = [socket.create_connection(("127.0.0.1", port), LIMIT) for _ in range(count)]
    return {everything(one) for one in strangers}


def everything(connection: socket.socket) -> bytes:
    """All there is to come, taken as it comes so that nobody has to wait for us."""
    found = bytearray()
    try:
        while chunk := connection.recv(1 << 16):
            found += chunk
    except ConnectionResetError:
        pass
    return bytes(found)


def ways_out(host: Host) -> list[str]:
    routes = host.ip.get_routes(family=socket.AF_INET, table=254)
    return [route.get_attr("RTA_GATEWAY") for route in routes if not route["dst_len"]]


def cpu_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
