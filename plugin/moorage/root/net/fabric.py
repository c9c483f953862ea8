"""The fabric: one segment over all nodes of a job, made and owned by root, with one end in the job's own network.

                this node                          |  the job's network on it
    underlay  --  VXLAN  <- rules ->  host's end  --  job's end, in Podman's bridge

Frames go from the host's end to the VXLAN and back by rules of the packet filter alone. Both are ports of a bridge that
is never up: whatever the rules do not take, or nobody takes once somebody has flushed them, ends there, and neither the
segment nor this node's own stack ever sees it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final, Self

from pyroute2.netlink.exceptions import NetlinkError

from moorage.common.errors import MoorageError, Taken, UserError
from moorage.linux import nft, nft_expressions
from moorage.linux.links import UNKNOWN, Links, links
from moorage.linux.nft import Chain, Table
from moorage.node import network_demands
from moorage.root.net import names

MOST_HOSTS: Final = 254
VNIS: Final = 1 << 24
UNPRIVILEGED: Final = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
UDP: Final = 17
BEFORE_ALL_OTHERS: Final = -500
# In VXLAN's header, which follows the eight bytes of UDP's.
VNI_PLACE: Final = 12
NEVER_FRAGMENTED: Final = 1


@dataclass(frozen=True)
class Site:
    """What a site settles for all fabrics; the same on all its nodes."""

    # Nobody but root can take this port before a job comes, or send from these.
    port: int = 339
    source_ports: tuple[int, int] = (600, 1023)
    # Frames to all, to a group or to an address that nobody is known by, a second: each is sent to every other node.
    flood: int = 2000


@dataclass(frozen=True)
class Fabric:
    """All there is to know of a job's fabric on one node; the state of the job keeps it."""

    job: int
    interface: str
    mtu: int
    # The job's nodes in Slurm's order, which is the same on all of them; this one is at `place`.
    hosts: tuple[IPv4Address, ...]
    place: int
    port: int
    source_ports: tuple[int, int]
    flood: int

    @classmethod
    def of(cls, job: int, interface: str, mtu: int, hosts: Sequence[IPv4Address], place: int, site: Site) -> Self:
        """The fabric of a job over an interface with this MTU; a UserError if it cannot be."""
        if len(hosts) > MOST_HOSTS:
            raise UserError(f"this job has {len(hosts)} nodes", f"a fabric joins at most {MOST_HOSTS}")
        if fault := network_demands.packets(interface, mtu):
            raise fault
        own = mtu - network_demands.OVERHEAD
        return cls(job, interface, own, tuple(hosts), place, site.port, site.source_ports, site.flood)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        low, high = fields["source_ports"]
        return cls(**{**fields, "hosts": tuple(map(IPv4Address, fields["hosts"])), "source_ports": (low, high)})

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "hosts": list(map(str, self.hosts)), "source_ports": list(self.source_ports)}

    @property
    def vni(self) -> int:
        """Two jobs may have the same; on a node that both have the second one is refused."""
        return self.job % VNIS

    @property
    def address(self) -> IPv4Address:
        return self.hosts[self.place]

    @property
    def peers(self) -> tuple[IPv4Address, ...]:
        return self.hosts[: self.place] + self.hosts[self.place + 1 :]

    def hardware_address(self, place: int) -> str:
        """The address of the one container by which a node takes part: frames to it go to that node alone."""
        number = 0x0A << 40 | self.vni << 16 | place + 1
        return ":".join(f"{byte:02x}" for byte in number.to_bytes(6, "big"))

    @property
    def tunnel(self) -> str:
        return names.link(self.job, "v")

    @property
    def host_end(self) -> str:
        return names.link(self.job, "h")

    @property
    def sink(self) -> str:
        return names.link(self.job, "s")


def check(site: Site) -> None:
    """A UserError if an ordinary user of this node could send what its peers take for root's."""
    if fault := network_demands.ports(site.port, site.source_ports, int(UNPRIVILEGED.read_text())):
        raise fault


def make(fabric: Fabric, site: Site) -> None:
    """Join this node to the job's segment; nothing stays if that fails."""
    check(site)
    with links() as here:
        for name in (fabric.tunnel, fabric.sink, fabric.host_end):
            if here.index(name):
                raise MoorageError(f"there is a link {name} already, left by an earlier run of job {fabric.job}")
        try:
            with _told(fabric):
                _make(fabric, here)
        except BaseException:
            remove(fabric.job)
            raise


def _make(fabric: Fabric, here: Links) -> None:
    # In this order: from the first frame on there are the rules, and something to swallow what they do not take. But no
    # rules before the kernel has said that the network's number is free: they would cut off who has it.
    tunnel = here.make(
        "vxlan",
        fabric.tunnel,
        mtu=fabric.mtu,
        vxlan_id=fabric.vni,
        vxlan_link=_index(here, fabric.interface),
        vxlan_local=str(fabric.address),
        vxlan_port=fabric.port,
        vxlan_port_range=dict(zip(("low", "high"), fabric.source_ports, strict=True)),
        vxlan_learning=0,
        vxlan_limit=len(fabric.hosts),
        vxlan_df=NEVER_FRAGMENTED,
    )
    nft.install(_guard(fabric), _silence(fabric))
    sink = here.make("bridge", fabric.sink)
    here.put_below(tunnel, sink)
    here.swallow_groups(tunnel)
    _try_forwarding(fabric, sink)
    here.forward(tunnel, _directions(fabric))
    here.set_up(tunnel)


def _try_forwarding(fabric: Fabric, sink: int) -> None:
    """What is plugged needs it, and a kernel that cannot do it is better known before."""
    trial = Table(nft.NETDEV, names.table(fabric.job), [_one_way("in", fabric.tunnel, sink)])
    nft.install(trial)
    nft.remove(trial)


def plug(fabric: Fabric, namespace: int, name: str) -> None:
    """Have an end of the fabric in another network namespace, whose owner was verified; again, if it was there before.

    The descriptor is all that is needed of that namespace: nothing is done in it.
    """
    with links() as here:
        here.remove([fabric.host_end])
        tunnel, sink = _index(here, fabric.tunnel), _index(here, fabric.sink)
        end = here.plug(fabric.host_end, fabric.mtu, namespace, name)
        here.put_below(end, sink)
        here.swallow_groups(end)
        nft.install(_guard(fabric), _silence(fabric), _patch(fabric, tunnel, end))
        here.set_up(end)


def intact(fabric: Fabric) -> bool:
    """Whether all rules are in place, which anybody may have flushed who manages this node's packet filter."""
    with links() as here:
        return nft.intact(*_tables(fabric, here))


def mend(fabric: Fabric) -> None:
    """Put the rules back; the fabric is down until they are there."""
    with links() as here:
        tunnel = _index(here, fabric.tunnel)
        here.set_down(tunnel)
        nft.install(*_tables(fabric, here))
        here.set_up(tunnel)


def remove(job: int) -> None:
    """Whatever there is of the job's fabric here; to be done as often as one likes."""
    with links() as here:
        here.remove(names.link(job, part) for part in "hvs")
    nft.remove(*(Table(family, names.table(job)) for family in (nft.IPV4, nft.IPV6, nft.NETDEV)))


def _tables(fabric: Fabric, here: Links) -> list[Table]:
    """All rules for what is there: the job's end goes with the job's network, and the host's end with it."""
    tunnel, end = here.index(fabric.tunnel), here.index(fabric.host_end)
    return [_guard(fabric), _silence(fabric), *([_patch(fabric, tunnel, end)] if tunnel and end else [])]


def _directions(fabric: Fabric) -> dict[str, list[IPv4Address]]:
    """Where frames for each hardware address go. Nothing is ever learnt: there is no room for more than these."""
    known = {fabric.hardware_address(place): [host] for place, host in enumerate(fabric.hosts) if place != fabric.place}
    return {UNKNOWN: list(fabric.peers), **known}


def _guard(fabric: Fabric) -> Table:
    """Only root of a peer may send into the segment.

    Judged where packets are put together again, so that nobody can hide a port in the second half of one.
    """
    ours = [
        *nft_expressions.protocol(UDP),
        *nft_expressions.target_port(fabric.port),
        nft_expressions.payload(nft_expressions.TRANSPORT, VNI_PLACE, 3),
        nft_expressions.compare(nft_expressions.EQUAL, fabric.vni.to_bytes(3, "big")),
    ]
    privileged = [
        *ours,
        *nft_expressions.source_in("peers"),
        *nft_expressions.source_port(*fabric.source_ports),
        nft_expressions.verdict(nft_expressions.ACCEPT),
    ]
    guard = Chain(
        "guard", "input", BEFORE_ALL_OTHERS, [privileged, [*ours, nft_expressions.verdict(nft_expressions.DROP)]]
    )
    return Table(nft.IPV4, names.table(fabric.job), [guard], [("peers", fabric.peers)])


def _silence(fabric: Fabric) -> Table:
    """A node that routes IPv6 would say so in the segment (seen on 6.18)."""
    said = [*nft_expressions.link_is("OIFNAME", fabric.tunnel), nft_expressions.verdict(nft_expressions.DROP)]
    return Table(nft.IPV6, names.table(fabric.job), [Chain("own", "output", BEFORE_ALL_OTHERS, [said])])


def _patch(fabric: Fabric, tunnel: int, end: int) -> Table:
    """The two ways between the tunnel and the host's end.

    Bounded is what the kernel has to send to several peers, in frames and in bytes: one that is still to be cut into
    many is one.
    """
    drop = nft_expressions.verdict(nft_expressions.DROP)
    decided = [
        [*_to_one_peer(fabric), *nft_expressions.forwarded(tunnel)],
        [nft_expressions.faster_than(fabric.flood), drop],
        [nft_expressions.heavier_than(fabric.flood * fabric.mtu), drop],
        nft_expressions.forwarded(tunnel),
    ]
    out = Chain("out", "ingress", 0, decided, link=fabric.host_end)
    return Table(nft.NETDEV, names.table(fabric.job), [out, _one_way("in", fabric.tunnel, end)])


def _one_way(name: str, link: str, target: int) -> Chain:
    return Chain(name, "ingress", 0, [nft_expressions.forwarded(target)], link=link)


def _to_one_peer(fabric: Fabric) -> nft_expressions.Rule:
    """Whether the kernel sends the frame to one peer: with several, where it knows whose the address is."""
    if len(fabric.peers) == 1:
        return nft_expressions.to_one()
    first, own, last = map(fabric.hardware_address, (0, fabric.place, len(fabric.hosts) - 1))
    return [
        *nft_expressions.frame_to(nft_expressions.AT_LEAST, first),
        *nft_expressions.frame_to(nft_expressions.AT_MOST, last),
        *nft_expressions.frame_to(nft_expressions.UNEQUAL, own),
    ]


def _index(here: Links, name: str) -> int:
    index = here.index(name)
    if index is None:
        raise MoorageError(f"there is no link {name} on this node: somebody has removed it")
    return index


@contextmanager
def _told(fabric: Fabric) -> Iterator[None]:
    """What the kernel refuses, in words."""
    try:
        yield
    except NetlinkError as error:
        match error.code:
            case errno.EEXIST:
                raise Taken(
                    f"network {fabric.vni}, which job {fabric.job} gets by its number, is in use on this node",
                    "submit it again: it gets another number",
                ) from error
            case errno.EADDRINUSE:
                raise UserError(
                    f"UDP port {fabric.port}, the fabric's, is in use on this node", "free it, or choose another"
                ) from error
            case errno.EOPNOTSUPP:
                cause = "this kernel has no VXLAN, or no nf_tables with the family netdev"
                raise UserError(cause, "modprobe vxlan nf_tables nft_fwd_netdev") from error
        raise
