"""The routes of this node, read from the kernel's files: for decisions that are too small for netlink."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from moorage.node.hostfiles import Node

if TYPE_CHECKING:
    from ipaddress import IPv4Network

IPV4: Final = "/proc/net/route"
IPV6: Final = "/proc/net/ipv6_route"
ANYWHERE_4: Final = "00000000"
ANYWHERE_6: Final = "0" * 32
# Networks of a pool that are looked at.
TRIED: Final = 1024
# The pool is halved so many times. The first part is for the default network, the others for further networks.
HALVINGS: Final = 2
LEAST: Final = 2


def networks(node: Node) -> Iterator[IPv4Network]:
    """The networks to which the node has a route, without the default route."""
    # Only here: few jobs need it.
    from ipaddress import IPv4Network

    return (IPv4Network((target, mask.bit_count())) for target, mask in masked(node))


def masked(node: Node) -> Iterator[tuple[int, int]]:
    """The same networks as numbers: an address and its mask."""
    for line in node.text(IPV4).splitlines()[1:]:
        _, target, _, _, _, _, _, mask, *_ = line.split()
        if mask != ANYWHERE_4:
            yield _number(target), _number(mask)


def free(pool: str, bits: int, taken: Iterable[tuple[int, int]]) -> Iterator[str]:
    """The networks of the pool, of so many bits, to which none of the routes leads."""
    others = list(taken)
    address, _, own_bits = pool.partition("/")
    first, own = int.from_bytes(socket.inet_aton(address), "big"), (1 << 32) - (1 << 32 - bits)
    for network in range(first, first + (1 << 32 - int(own_bits)), 1 << 32 - bits)[:TRIED]:
        if all((network ^ other) & mask & own for other, mask in others):
            yield f"{socket.inet_ntoa(network.to_bytes(4, 'big'))}/{bits}"


def leads_out(node: Node, *, by: Sequence[str] = (IPV4, IPV6)) -> bool:
    """Whether the node has a default route."""
    return any(_is_default(line.split()) for table in by for line in node.text(table).splitlines())


def _is_default(route: Sequence[str]) -> bool:
    """IPv4's table has the link first, then the target; IPv6's has the target first and the link last."""
    match route:
        case [_, target, _, _, _, _, _, mask, _, _, _]:
            return target == mask == ANYWHERE_4
        case [target, "00", *_, link]:
            return target == ANYWHERE_6 and link != "lo"
    return False


def _number(digits: str) -> int:
    """The address as a number. The kernel prints its four bytes as this machine reads a number."""
    return int.from_bytes(int(digits, 16).to_bytes(4, sys.byteorder), "big")


def choose_subnets(node: Node, pool: str) -> tuple[str, ...]:
    """The parts of the pool, without those to which this node has a route, unless too few remain."""
    return free_subnets(node, pool) or tuple(free(pool, _bits(pool), ()))


def free_subnets(node: Node, pool: str) -> tuple[str, ...]:
    """The parts of the pool to which this node has no route; none if they are too few."""
    found = tuple(free(pool, _bits(pool), masked(node)))
    return found if len(found) >= LEAST else ()


def _bits(pool: str) -> int:
    return int(pool.rpartition("/")[2]) + HALVINGS
