"""What jobs on more than one node need of this one; without it those on one node start all the same."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from moorage import kernel, slurmconf
from moorage.finding import Finding
from moorage.node import Node

if TYPE_CHECKING:
    from moorage.checks import Scene
    from moorage.config import Fabric

CHECK: Final = "several nodes"
FIRST_OF_EVERYBODYS: Final = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
ROUTES: Final = "/proc/net/route"


def check(scene: Scene) -> Iterator[Finding]:
    site, node = scene.config.fabric, scene.node
    for found in slurmconf.several_nodes(scene.around.slurm_conf, scene.around.slurm):
        yield _advice(found.cause, "set it")
    for name in sorted(kernel.lacking(kernel.SEVERAL_NODES, node, os.uname().release, scene.facts)):
        yield _advice(f"this kernel has no module {name}", "install the rest of the kernel's modules")
    yield from _ports(site, node)
    yield from _routes(site, node)


def _ports(site: Fabric, node: Node) -> Iterator[Finding]:
    first = node.number(FIRST_OF_EVERYBODYS)
    highest = max(site.port, int(site.source_ports.rpartition("-")[2]))
    if first is not None and highest >= first:
        cause = f"fabric.port and fabric.source_ports reach to {highest}, and from {first} on ports are everybody's"
        yield _advice(cause, "choose lower ones, or raise net.ipv4.ip_unprivileged_port_start")


def _routes(site: Fabric, node: Node) -> Iterator[Finding]:
    subnet = IPv4Network(site.subnet)
    for line in node.text(ROUTES).splitlines()[1:]:
        _, target, _, _, _, _, _, mask, *_ = line.split()
        network = IPv4Network((_address(target), _address(mask)))
        if network.prefixlen and network.overlaps(subnet):
            yield _advice(
                f"this node has a route to {network}, and containers would have {subnet}",
                "choose another fabric.subnet",
            )
            return


def _address(digits: str) -> str:
    """As the kernel prints it: the number that four bytes in the order of the network are to this machine."""
    return socket.inet_ntoa(int(digits, 16).to_bytes(4, sys.byteorder))


def _advice(cause: str, remedy: str) -> Finding:
    return Finding(CHECK, f"jobs on several nodes are refused here: {cause}", remedy, "advice")
