"""What this node needs so that jobs can be on it and on others at once; a job on one node asks for none of it.

Read from files, because a health check comes again and again: the rest shows when a fabric is made.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from moorage import kernel
from moorage.config import Fabric
from moorage.facts import Facts
from moorage.finding import Finding
from moorage.node import Node

CHECK: Final = "fabric"
MODULES: Final = ("nft_fwd_netdev", "vxlan")
# Frames of the smallest MTU that containers can have, in VXLAN.
LEAST_MTU: Final = 1330
UNPRIVILEGED: Final = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
ROUTES: Final = "/proc/net/route"
LINKS: Final = "/sys/class/net"
INSTEAD: Final = "or set policy.most_nodes to 1"


def check(rule: Fabric, node: Node, release: str, facts: Facts) -> Iterator[Finding]:
    for name in kernel.lacking(MODULES, node, release, facts):
        cause = f"this kernel has no module {name}, which joins the nodes of a job"
        yield Finding(CHECK, cause, f"install the rest of the kernel's modules, {INSTEAD}")
    yield from _ports(rule, node)
    yield from _subnet(rule, node)
    yield from _interface(rule, node)
    if rule.hosts and not rule.hosts.is_file():
        yield Finding(CHECK, f"fabric.hosts: there is no {rule.hosts}", "put it there, the same on all nodes")


def _ports(rule: Fabric, node: Node) -> Iterator[Finding]:
    """From where on they are everybody's, no peer can be told from a user."""
    first = node.number(UNPRIVILEGED)
    highest = max(rule.port, int(rule.source_ports.partition("-")[2]))
    if first is not None and highest >= first:
        cause = f"from {first} on ports are everybody's, and the fabric's go up to {highest}"
        remedy = "raise net.ipv4.ip_unprivileged_port_start, or choose lower fabric.port and fabric.source_ports"
        yield Finding(CHECK, cause, remedy)


def _subnet(rule: Fabric, node: Node) -> Iterator[Finding]:
    subnet = IPv4Network(rule.subnet)
    for link, there in _routes(node.text(ROUTES)):
        if there.prefixlen and there.overlaps(subnet):
            cause = f"this node has a route to {there} by {link}, and containers would have {subnet}"
            yield Finding(CHECK, cause, "choose another fabric.subnet, the same on all nodes")


def _routes(table: str) -> Iterator[tuple[str, IPv4Network]]:
    """The kernel writes addresses as numbers of this machine."""
    for line in table.splitlines()[1:]:
        words = line.split()
        network, mask = (IPv4Address(struct.pack("=I", int(words[column], 16))) for column in (1, 7))
        yield words[0], IPv4Network((int(network), int(mask).bit_count()), strict=False)


def _interface(rule: Fabric, node: Node) -> Iterator[Finding]:
    if rule.interface is None:
        return
    if not node.has(f"{LINKS}/{rule.interface}"):
        yield Finding(
            CHECK, f"fabric.interface: there is no {rule.interface} on this node", "name the one that is there"
        )
        return
    mtu = node.number(f"{LINKS}/{rule.interface}/mtu")
    if mtu is not None and mtu < LEAST_MTU:
        yield Finding(CHECK, f"the MTU of {rule.interface} is {mtu}", f"a fabric needs {LEAST_MTU}")
