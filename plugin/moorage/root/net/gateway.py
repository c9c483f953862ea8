"""The node as the gateway of a job: a veth pair and address translation, the only uplink that copies no data.

Packets of the job leave with the node's address, and with a source port of a range that nothing else on the node uses.
So root of the job's own namespace is never taken for root of this node, and never gets packets for a service here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from typing import Any, Final, Self

from moorage.common.errors import MoorageError, Taken
from moorage.linux import conntrack, nft, nft_expressions
from moorage.linux.links import harden, links
from moorage.linux.nft import Chain, Table
from moorage.linux.nft_expressions import Rule
from moorage.node import network_demands
from moorage.node.config.schema import Uplink
from moorage.root.net import names

ICMP, TCP, UDP = 1, 6, 17
BEFORE_THE_SITES: Final = -10
BEFORE_ANY_TRANSLATION: Final = -300
SOURCE_TRANSLATION: Final = 100
POOL: Final = IPv4Network("100.96.0.0/16")
IPV4_ONLY: Final = bytes([nft.IPV4])
# So many seconds the kernel remembers a TCP connection that has ended.
REMEMBERED: Final = 120
TRACKED: Final = nft_expressions.NEW | nft_expressions.ESTABLISHED_OR_RELATED
PREFIX: Final = 30
# At most so many networks of the pool are tried for a job.
TRIED: Final = 1024


@dataclass(frozen=True)
class Site:
    """The site's settings for the uplink `kernel`."""

    pool: IPv4Network = POOL
    # Networks that containers cannot connect to.
    refused: tuple[IPv4Network, ...] = ()
    # The most connections of a job at a time: all jobs share the node's table, which is finite.
    connections: int = 1024

    @classmethod
    def of(cls, rule: Uplink) -> Self:
        return cls(IPv4Network(rule.pool), tuple(map(IPv4Network, rule.refused)), rule.connections)


@dataclass(frozen=True)
class Gateway:
    """The gateway of a job, as the state of the job keeps it."""

    job: int
    network: IPv4Network
    mtu: int
    fabric_port: int
    refused: tuple[IPv4Network, ...]
    connections: int

    @classmethod
    def of(cls, job: int, fabric_port: int, site: Site) -> Self:
        """The gateway that this node is for the job; an error if it is not possible."""
        network_demands.forwarding()
        with links() as here:
            outside = here.default_link()
            if outside is None:
                raise MoorageError(
                    "this node has no default route: there is no outside for containers to reach", code="M-UPLINK-7"
                )
            network = free_network(site.pool, job, here.networks())
            return cls(job, network, here.mtu(outside), fabric_port, site.refused, site.connections)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        refused = tuple(IPv4Network(text) for text in fields["refused"])
        return cls(**{**fields, "network": IPv4Network(fields["network"]), "refused": refused})

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "network": str(self.network), "refused": list(map(str, self.refused))}

    @property
    def outer(self) -> IPv4Interface:
        """The node's address on the link: the job's default route."""
        return IPv4Interface((self.network[1], self.network.prefixlen))

    @property
    def inner(self) -> IPv4Interface:
        """The job's address on the link. The job sets it itself."""
        return IPv4Interface((self.network[2], self.network.prefixlen))

    @property
    def host_end(self) -> str:
        return names.link(self.job, "u")


def make(gateway: Gateway) -> None:
    """Install the rules, which use the link's name: they exist before the link does."""
    nft.install(_table(gateway))


def plug(gateway: Gateway, namespace: int, name: str) -> None:
    """Put the link into another network namespace, whose owner was verified; an earlier link is removed."""
    with links() as here:
        here.remove([gateway.host_end])
        end = here.plug(gateway.host_end, gateway.mtu, namespace, name)
        here.give_address(end, gateway.outer)
        if any(address.network.overlaps(gateway.network) for index, address in here.addresses() if index != end):
            here.remove([gateway.host_end])
            raise MoorageError(
                f"the network of job {gateway.job}, {gateway.network}, is used by another link now", code="M-UPLINK-8"
            )
        # These are connections of an earlier job with this network, whose late answers would reach this job; or of this
        # job: it may plug often, and new rules count its connections from zero.
        conntrack.remove(gateway.inner.ip)
        nft.install(_table(gateway))
        harden(gateway.host_end)
        here.set_up(end)


def intact(gateway: Gateway) -> bool:
    """Whether all rules exist. Managers of this node's packet filter may flush them."""
    return nft.intact(_table(gateway))


def mend(gateway: Gateway) -> None:
    """Put the rules back. The link is down meanwhile."""
    with links() as here:
        end = here.index(gateway.host_end)
        if end:
            here.set_down(end)
        nft.install(_table(gateway))
        if end:
            # An interrupted `plug` may not have come to this.
            harden(gateway.host_end)
            here.set_up(end)


def remove(job: int) -> None:
    """Remove what exists of the job's gateway. This can be repeated."""
    with links() as here:
        here.remove([names.link(job, "u")])
    nft.remove(Table(nft.INET, names.table(job)))


def _table(gateway: Gateway) -> Table:
    end = gateway.host_end
    from_job, to_job = nft_expressions.link_is("IIFNAME", end), nft_expressions.link_is("OIFNAME", end)
    drop = nft_expressions.verdict(nft_expressions.DROP)
    answer: Rule = [
        *to_job,
        *nft_expressions.connection(nft_expressions.ESTABLISHED_OR_RELATED),
        nft_expressions.verdict(nft_expressions.ACCEPT),
    ]
    nothing_else: Rule = [*to_job, drop]
    return Table(
        nft.INET,
        names.table(gateway.job),
        [
            # The job reaches no service on this node, and the node sends nothing to the job but answers. Packets for an
            # address of the node are dropped while they still have it: the site may redirect them later.
            Chain(
                "ahead", "prerouting", BEFORE_ANY_TRANSLATION, [[*from_job, *nft_expressions.target_is_local(), drop]]
            ),
            Chain("input", "input", BEFORE_THE_SITES, [[*from_job, drop]]),
            Chain("output", "output", BEFORE_THE_SITES, [answer, nothing_else]),
            # The rules that decide most often come first: each rule costs every packet time.
            Chain("forward", "forward", BEFORE_THE_SITES, [answer, *_allowed(gateway, from_job, drop), nothing_else]),
            Chain("translate", "postrouting", SOURCE_TRANSLATION, _translation(gateway, from_job), kind="nat"),
        ],
    )


def _allowed(gateway: Gateway, from_job: Rule, drop: nft_expressions.Expression) -> list[Rule]:
    """Rules for what the job may send: with its own address, not to fabrics, not to networks the site refuses."""
    accepted = [
        [*from_job, *nft_expressions.protocol(number), nft_expressions.verdict(nft_expressions.ACCEPT)]
        for number in (TCP, UDP, ICMP)
    ]
    new = nft_expressions.connection(nft_expressions.NEW)
    return [
        [*from_job, nft_expressions.meta("NFPROTO"), nft_expressions.compare(nft_expressions.UNEQUAL, IPV4_ONLY), drop],
        [*from_job, *nft_expressions.source(nft_expressions.UNEQUAL, gateway.inner.ip), drop],
        [*from_job, *nft_expressions.protocol(UDP), *nft_expressions.target_port(gateway.fabric_port), drop],
        *([*from_job, *nft_expressions.target_in(network), drop] for network in gateway.refused),
        # Most packets belong to a connection with an answer. The rules below are for the others.
        [
            *from_job,
            *nft_expressions.connection(nft_expressions.ESTABLISHED),
            nft_expressions.verdict(nft_expressions.ACCEPT),
        ],
        # Packets of no connection, such as stray errors and remains of connections, are not translated either.
        [*from_job, *nft_expressions.no_connection(TRACKED), drop],
        [*from_job, *new, nft_expressions.more_connections_than(gateway.connections), drop],
        # The kernel does not count ended connections, which stay in its table for a while (seen on 6.18).
        [
            *from_job,
            *nft_expressions.protocol(TCP),
            *new,
            nft_expressions.faster_than(gateway.connections, REMEMBERED),
            drop,
        ],
        *accepted,
        [*from_job, drop],
    ]


def _translation(gateway: Gateway, from_job: Rule) -> list[Rule]:
    """Rules of address translation. They go by link and not by address, so only packets of the job match."""
    ports = nft_expressions.masqueraded(*network_demands.JOBS_PORTS)
    return [
        [*from_job, *nft_expressions.protocol(TCP), *ports],
        [*from_job, *nft_expressions.protocol(UDP), *ports],
        [*from_job, *nft_expressions.protocol(ICMP), *nft_expressions.masqueraded_portless()],
    ]


def free_network(pool: IPv4Network, job: int, taken: Sequence[IPv4Network]) -> IPv4Network:
    """A network of two addresses to which this node has no route: always the same one for a job, if that is free.

    Raises Taken if there is none: routes into the pool are those of other jobs, which end.
    """
    count = 1 << max(0, PREFIX - pool.prefixlen)
    size = 1 << 32 - PREFIX
    for step in range(min(count, TRIED)):
        start = int(pool.network_address) + (job + step) % count * size
        network = IPv4Network((start, PREFIX))
        if network.subnet_of(pool) and not any(network.overlaps(other) for other in taken):
            return network
    raise Taken(
        f"no network is free for job {job} in the pool {pool}: this node has other routes there",
        "give the uplink kernel another pool",
        code="M-UPLINK-9",
    )
