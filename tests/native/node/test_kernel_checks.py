"""What the fabric asks of a kernel: each failure names what this one lacks."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import pytest
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.nftables.expressions import genex, verdict
from pyroute2.nftables.main import NFTables

from support.namespaces import inside, network

VNI: Final = 4242
PORT: Final = 4790
PRIVILEGED: Final = (600, 700)
EVERYBODY: Final = "00:00:00:00:00:00"
DROP: Final = 0
LACKING: Final = {errno.EOPNOTSUPP, errno.ENOENT, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT}


@contextmanager
def needed(what: str, module: str) -> Iterator[None]:
    try:
        yield
    except NetlinkError as error:
        if error.code not in LACKING:
            raise
        pytest.fail(f"this kernel has no {what}: load the module {module}", pytrace=False)


@dataclass(frozen=True)
class Host:
    """A network namespace that stands for a node, reached by the others at `address`."""

    namespace: int
    number: int
    ip: IPRoute

    @property
    def address(self) -> str:
        return f"192.0.2.{self.number}"

    @property
    def fabric(self) -> str:
        return f"198.51.100.{self.number}"

    def link(self, name: str) -> int:
        return int(self.ip.link_lookup(ifname=name)[0])

    def up(self, name: str, address: str | None = None) -> None:
        if address:
            self.ip.addr("add", index=self.link(name), address=address, prefixlen=24)
        self.ip.link("set", index=self.link(name), state="up")

    def socket(self, address: str) -> socket.socket:
        with inside(self.namespace):
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((address, 0))
        made.settimeout(5)
        return made

    def join(self, peer: Self) -> None:
        """Join the fabric: a VXLAN without learning, to one known peer, bridged."""
        with needed("VXLAN links", "vxlan"):
            self.ip.link(
                "add", ifname="vxlan", kind="vxlan", vxlan_id=VNI, vxlan_port=PORT, vxlan_learning=0,
                vxlan_local=self.address, vxlan_port_range={"low": PRIVILEGED[0], "high": PRIVILEGED[1]},
            )  # fmt: skip
        self.ip.fdb("append", ifindex=self.link("vxlan"), lladdr=EVERYBODY, dst=peer.address)
        with needed("bridges", "bridge"):
            self.ip.link("add", ifname="bridge", kind="bridge")
        self.ip.link("set", index=self.link("vxlan"), master=self.link("bridge"))
        self.up("vxlan")
        self.up("bridge", self.fabric)


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts and a cable between them."""
    with ExitStack() as stack:
        first, second = (_host(stack, number) for number in (1, 2))
        with needed("veth pairs", "veth"):
            first.ip.link("add", ifname="cable", kind="veth", peer={"ifname": "cable", "net_ns_fd": second.namespace})
        for host in (first, second):
            host.up("cable", host.address)
        yield first, second


def _host(stack: ExitStack, number: int) -> Host:
    namespace = stack.enter_context(network())
    with inside(namespace):
        return Host(namespace, number, stack.enter_context(IPRoute()))


def arrives(sender: socket.socket, receiver: socket.socket) -> bool:
    """Whether a datagram gets through within the receiver's time limit."""
    sender.sendto(b"moored", receiver.getsockname())
    try:
        return receiver.recv(100) == b"moored"
    except TimeoutError:
        return False


def test_veth(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    with first.socket(first.address) as sender, second.socket(second.address) as receiver:
        assert arrives(sender, receiver)


def test_vxlan_and_bridge_carry_a_segment_over_two_hosts(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    first.join(second)
    second.join(first)
    with first.socket(first.fabric) as sender, second.socket(second.fabric) as receiver:
        assert arrives(sender, receiver)
        assert arrives(receiver, sender)


def drop_source_ports(host: Host, low: int, high: int) -> None:
    """Drop what reaches the host's VXLAN port from these source ports."""

    def compare(operator: int, port: int) -> Any:  # noqa: ANN401
        return genex("cmp", {"sreg": 1, "op": operator, "data": _value(port)})

    source_port = genex("payload", {"dreg": 1, "base": 2, "offset": 0, "len": 2})
    target_port = genex("payload", {"dreg": 1, "base": 2, "offset": 2, "len": 2})
    equal, at_most, at_least = 0, 3, 5
    rule = [
        target_port,
        compare(equal, PORT),
        source_port,
        compare(at_least, low),
        compare(at_most, high),
        *verdict(DROP),
    ]
    with inside(host.namespace), NFTables(nfgen_family=socket.AF_INET) as nft, needed("nftables", "nf_tables"):
        nft.table("add", name="moorage")
        nft.chain("add", table="moorage", name="guard", hook="input", type="filter", priority=0, policy=1)
        nft.rule("add", table="moorage", chain="guard", expressions=[rule])


def _value(port: int) -> dict[str, Any]:
    return {"attrs": [("NFTA_DATA_VALUE", port.to_bytes(2, "big"))]}


@pytest.mark.parametrize(("dropped", "through"), [((1024, 65535), True), (PRIVILEGED, False)])
def test_nftables_tells_privileged_source_ports_apart(
    hosts: tuple[Host, Host], dropped: tuple[int, int], through: bool
) -> None:
    first, second = hosts
    first.join(second)
    second.join(first)
    with first.socket(first.fabric) as sender, second.socket(second.fabric) as receiver:
        assert arrives(sender, receiver), "the segment has to work before it is guarded"
        drop_source_ports(second, *dropped)
        receiver.settimeout(5 if through else 1)
        assert arrives(sender, receiver) is through
