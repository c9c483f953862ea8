"""The parts of rules of the packet filter, tests and actions: data in the form that pyroute2 takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

from pyroute2.netlink import nlmsg_atoms
from pyroute2.netlink.nfnetlink import nftsocket as kernel
from pyroute2.nftables.expressions import genex

# One expression of the kernel, in the form that pyroute2 sends.
Expression = dict[str, Any]
Rule = Sequence[Expression]

DROP: Final = 0
ACCEPT: Final = 1

LINK: Final = 0
NETWORK: Final = 1
TRANSPORT: Final = 2
EQUAL, UNEQUAL, AT_MOST, AT_LEAST = 0, 1, 3, 5
ESTABLISHED: Final = 2
ESTABLISHED_OR_RELATED: Final = ESTABLISHED | 4
NEW: Final = 8
INVERTED: Final = 1
# Without these flags the kernel keeps the source port of a packet if it is in the range.
ANY_PORT_OF_THESE: Final = frozenset({"NF_NAT_RANGE_PROTO_SPECIFIED", "NF_NAT_RANGE_PROTO_RANDOM_FULLY"})
# Ask for the type of the target address; the type of an address of this host.
BY_TARGET, KIND_OF_ADDRESS, LOCAL = 2, 3, 2

# pyroute2 gives these fields types that it does not have, or that differ from the kernel's (0.9.7).
kernel.nft_contains_expr.nft_expr.nft_fwd.u32 = nlmsg_atoms.uint32
kernel.nft_contains_expr.nft_expr.nft_fib.fib_result = nlmsg_atoms.be32
kernel.nft_contains_expr.nft_expr.nft_fib.fib_flags = nlmsg_atoms.be32


def payload(base: int, offset: int, length: int) -> Expression:
    return _expression("payload", dreg=1, base=base, offset=offset, len=length)


def meta(key: str) -> Expression:
    return _expression("meta", dreg=1, key=int(kernel.Meta[f"NFT_META_{key}"]))


def compare(operator: int, to: bytes) -> Expression:
    return _expression("cmp", sreg=1, op=operator, data=value(to))


def masked(mask: bytes) -> Expression:
    return _expression("bitwise", sreg=1, dreg=1, len=len(mask), mask=value(mask), xor=value(bytes(len(mask))))


def verdict(code: int) -> Expression:
    return _expression(
        "immediate", dreg=0, data={"attrs": [("NFTA_DATA_VERDICT", {"attrs": [("NFTA_VERDICT_CODE", code)]})]}
    )


def within(name: str) -> Expression:
    """Whether the address is in the set."""
    return _expression("lookup", set=name, sreg=1)


def forwarded(index: int) -> Rule:
    """Send the frame out by another link at once, past everything else that the kernel does with frames."""
    return [_immediate(1, index.to_bytes(4, sys.byteorder)), _expression("fwd", sreg_dev=1)]


def faster_than(packets: int, seconds: int = 1) -> Expression:
    """Whether more packets than that come in so many seconds."""
    return _expression("limit", rate=packets, unit=seconds, burst=packets, type=0, flags=INVERTED)


def heavier_than(size: int) -> Expression:
    """Whether more bytes than that come in a second."""
    return _expression("limit", rate=size, unit=1, burst=size, type=1, flags=INVERTED)


def more_connections_than(count: int) -> Expression:
    return _expression("connlimit", count=count, flags={"NFT_LIMIT_F_INV"})


def masqueraded(low: int, high: int) -> Rule:
    """Replace the source address, and the source port by a random one of this range."""
    return [
        _immediate(1, low.to_bytes(2, "big")),
        _immediate(2, high.to_bytes(2, "big")),
        _expression("masq", flags=ANY_PORT_OF_THESE, reg_proto_min=1, reg_proto_max=2),
    ]


def masqueraded_portless() -> Rule:
    return [_expression("masq")]


def link_is(key: str, name: str) -> Rule:
    return [meta(key), compare(EQUAL, name.encode().ljust(16, b"\0"))]


def protocol(number: int) -> Rule:
    return [meta("L4PROTO"), compare(EQUAL, bytes([number]))]


def source_in(name: str) -> Rule:
    return [payload(NETWORK, 12, 4), within(name)]


def source(operator: int, address: IPv4Address) -> Rule:
    return [payload(NETWORK, 12, 4), compare(operator, address.packed)]


def target_in(network: IPv4Network) -> Rule:
    return [payload(NETWORK, 16, 4), masked(network.netmask.packed), compare(EQUAL, network.network_address.packed)]


def target_is_local() -> Rule:
    """Whether the packet is for an address of this host."""
    kind = _expression("fib", dreg=1, flags=BY_TARGET, result=KIND_OF_ADDRESS)
    return [kind, compare(EQUAL, LOCAL.to_bytes(4, sys.byteorder))]


def source_port(low: int, high: int) -> Rule:
    return [
        payload(TRANSPORT, 0, 2),
        compare(AT_LEAST, low.to_bytes(2, "big")),
        compare(AT_MOST, high.to_bytes(2, "big")),
    ]


def target_port(port: int) -> Rule:
    return [payload(TRANSPORT, 2, 2), compare(EQUAL, port.to_bytes(2, "big"))]


def connection(states: int) -> Rule:
    """Whether the packet's connection is in one of these states."""
    return [*_states(states), compare(UNEQUAL, bytes(4))]


def no_connection(states: int) -> Rule:
    """Whether the packet belongs to no connection in one of these states."""
    return [*_states(states), compare(EQUAL, bytes(4))]


def _states(states: int) -> Rule:
    return [_expression("ct", dreg=1, key=0), masked(states.to_bytes(4, sys.byteorder))]


def to_one() -> Rule:
    """Whether the frame is for one host: no broadcast and no multicast."""
    return [payload(LINK, 0, 1), masked(b"\1"), compare(EQUAL, b"\0")]


def frame_to(operator: int, address: str) -> Rule:
    """Compare the frame's target with this hardware address."""
    return [payload(LINK, 0, 6), compare(operator, bytes.fromhex(address.replace(":", "")))]


def value(content: bytes) -> Expression:
    return {"attrs": [("NFTA_DATA_VALUE", content)]}


def _expression(name: str, **fields: object) -> Expression:
    expression: Expression = genex(name, fields)
    return expression


def _immediate(register: int, content: bytes) -> Expression:
    return _expression("immediate", dreg=register, data=value(content))
