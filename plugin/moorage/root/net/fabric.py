"""The fabric: a network of root's over all nodes of a job, with one end in the job's own network namespace.

                this node                          |  the job's network on it
    underlay  --  VXLAN  <- rules ->  host's end  --  job's end, in Podman's bridge

Only rules of the packet filter pass frames between the host's end and the VXLAN. Both are ports of a bridge that is
never up. Frames that no rule takes, also after somebody has flushed the rules, end there: neither the fabric nor this
node's own stack ever sees them.
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
# The place of the network's number in the header of VXLAN, counted from that of UDP.
VNI_PLACE: Final = 12
NEVER_FRAGMENTED: Final = 1


@dataclass(frozen=True)
class Site:
    """The site's settings for all fabrics, which are the same on all nodes."""

    # Only root can listen on this port, and send from these.
    port: int = 339
    source_ports: tuple[int, int] = (600, 1023)
    # Broadcasts, multicasts and frames to unknown addresses, a second: each one is sent to every other node.
    flood: int = 2000


@dataclass(frozen=True)
class Fabric:
    """A job's fabric on one node, as the state of the job keeps it."""

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
        """The fabric of a job over an interface with this MTU; a UserError if it is not possible."""
        if len(hosts) > MOST_HOSTS:
            raise UserError(
                f"this job has {len(hosts)} nodes", f"a fabric joins at most {MOST_HOSTS}", code="M-FABRIC-6"
            )
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
        """The network's number in VXLAN. Two jobs may have the same one: then a node refuses the second job."""
        return self.job % VNIS

    @property
    def address(self) -> IPv4Address:
        return self.hosts[self.place]

    @property
    def peers(self) -> tuple[IPv4Address, ...]:
        return self.hosts[: self.place] + self.hosts[self.place + 1 :]

    def hardware_address(self, place: int) -> str:
        """The hardware address of a node's container in the fabric: frames to it go to that node alone."""
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
    """A UserError if an ordinary user of this node could send packets that other nodes take for root's."""
    if fault := network_demands.ports(site.port, site.source_ports, int(UNPRIVILEGED.read_text())):
        raise fault


def make(fabric: Fabric, site: Site) -> None:
    """Join this node to the job's fabric. If that fails, nothing stays."""
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
    # The order matters: the rules and the bridge must exist before the first frame comes. But the rules must not exist
    # before the kernel has accepted the network's number: they would cut off another network with this number.
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
    """Install a forwarding rule for a moment: if the kernel has none, the Prolog fails, and not the plugging later."""
    trial = Table(nft.NETDEV, names.table(fabric.job), [_one_way("in", fabric.tunnel, sink)])
    nft.install(trial)
    nft.remove(trial)


def plug(fabric: Fabric, namespace: int, name: str) -> None:
    """Put an end of the fabric into another network namespace, whose owner was verified; an earlier end is removed.

    The descriptor of that namespace is enough: this process does not enter it.
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
    """Whether all rules exist. Managers of this node's packet filter may flush them."""
    with links() as here:
        return nft.intact(*_tables(fabric, here))


def mend(fabric: Fabric) -> None:
    """Put the rules back. The fabric is down meanwhile."""
    with links() as here:
        tunnel = _index(here, fabric.tunnel)
        here.set_down(tunnel)
        nft.install(*_tables(fabric, here))
        here.set_up(tunnel)


def remove(job: int) -> None:
    """Remove what exists of the job's fabric on this node. This can be repeated."""
    with links() as here:
        here.remove(names.link(job, part) for part in "hvs")
    nft.remove(*(Table(family, names.table(job)) for family in (nft.IPV4, nft.IPV6, nft.NETDEV)))


def _tables(fabric: Fabric, here: Links) -> list[Table]:
    """All tables for the links that exist. If the job's network namespace ends, both ends in it and here end too."""
    tunnel, end = here.index(fabric.tunnel), here.index(fabric.host_end)
    return [_guard(fabric), _silence(fabric), *([_patch(fabric, tunnel, end)] if tunnel and end else [])]


def _directions(fabric: Fabric) -> dict[str, list[IPv4Address]]:
    """The targets of frames for each hardware address. The table is full with these: nothing is ever learnt."""
    known = {fabric.hardware_address(place): [host] for place, host in enumerate(fabric.hosts) if place != fabric.place}
    return {UNKNOWN: list(fabric.peers), **known}


def _guard(fabric: Fabric) -> Table:
    """Rules by which only root of another node of the job can send into the fabric.

    They are at a hook that sees whole packets, so that nobody can hide a port in a later fragment.
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
    """Rules against announcements of IPv6 routes, which a node that routes IPv6 sends (seen on 6.18)."""
    said = [*nft_expressions.link_is("OIFNAME", fabric.tunnel), nft_expressions.verdict(nft_expressions.DROP)]
    return Table(nft.IPV6, names.table(fabric.job), [Chain("own", "output", BEFORE_ALL_OTHERS, [said])])


def _patch(fabric: Fabric, tunnel: int, end: int) -> Table:
    """Rules that pass frames between the tunnel and the host's end, in both directions.

    Frames for several nodes are limited, in number and in bytes: a large frame, which is cut into many later, counts as
    one here.
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
    """Whether the kernel sends the frame to one node only: there is one, or the address is known."""
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
    """Turn errors of the kernel into errors with a cause and a remedy."""
    try:
        yield
    except NetlinkError as error:
        match error.code:
            case errno.EEXIST:
                raise Taken(
                    f"network {fabric.vni}, which job {fabric.job} gets by its number, is in use on this node",
                    "submit it again: it gets another number",
                    code="M-FABRIC-7",
                ) from error
            case errno.EADDRINUSE:
                raise UserError(
                    f"UDP port {fabric.port}, the fabric's, is in use on this node",
                    "free it, or choose another",
                    code="M-FABRIC-8",
                ) from error
            case errno.EOPNOTSUPP:
                cause = "this kernel has no VXLAN, or no nf_tables with the family netdev"
                raise UserError(cause, "modprobe vxlan nf_tables nft_fwd_netdev", code="M-FABRIC-9") from error
        raise
