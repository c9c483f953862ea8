"""What jobs on more than one node need of this one; without it those on one node start all the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from moorage import kernel, routes, slurmconf
from moorage.finding import Finding
from moorage.node import Node

if TYPE_CHECKING:
    from moorage.checks import Scene
    from moorage.config import Fabric

CHECK: Final = "several nodes"
FIRST_OF_EVERYBODYS: Final = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
LINKS: Final = "/sys/class/net"
# What net.fabric asks for, which takes long to import: a health check comes again and again.
LEAST_MTU: Final = 1330


def check(scene: Scene) -> Iterator[Finding]:
    """Where the site has jobs on one node only, none of it is missed."""
    site, node, around = scene.config.fabric, scene.node, scene.around
    if scene.config.policy.most_nodes == 1:
        return
    # Of a slurm.conf that says nothing that is said elsewhere.
    for found in slurmconf.several_nodes(around.slurm_conf, around.slurm) if around.slurm else ():
        yield _advice(found.cause, "set it, or policy.most_nodes to 1")
    for name in sorted(kernel.lacking(kernel.SEVERAL_NODES, node, os.uname().release, scene.facts)):
        yield _advice(f"this kernel has no module {name}", "install the rest of the kernel's modules")
    yield from _ports(site, node)
    yield from _routes(site, node)
    yield from _interface(site, node)
    if site.hosts and not site.hosts.is_file():
        yield _advice(f"fabric.hosts: there is no {site.hosts}", "put it there, the same on all nodes")


def _ports(site: Fabric, node: Node) -> Iterator[Finding]:
    first = node.number(FIRST_OF_EVERYBODYS)
    highest = max(site.port, int(site.source_ports.rpartition("-")[2]))
    if first is not None and highest >= first:
        cause = f"fabric.port and fabric.source_ports reach to {highest}, and from {first} on ports are everybody's"
        yield _advice(cause, "choose lower ones, or raise net.ipv4.ip_unprivileged_port_start")


def _routes(site: Fabric, node: Node) -> Iterator[Finding]:
    subnet = IPv4Network(site.subnet)
    for network in routes.networks(node):
        if network.overlaps(subnet):
            yield _advice(
                f"this node has a route to {network}, and containers would have {subnet}",
                "choose another fabric.subnet",
            )
            return


def _interface(site: Fabric, node: Node) -> Iterator[Finding]:
    if site.interface is None:
        return
    if not node.has(f"{LINKS}/{site.interface}"):
        yield _advice(f"fabric.interface: there is no {site.interface} here", "name the one that is there")
        return
    mtu = node.number(f"{LINKS}/{site.interface}/mtu")
    if mtu is not None and mtu < LEAST_MTU:
        yield _advice(f"the MTU of {site.interface} is {mtu}", f"make it {LEAST_MTU} or more")


def _advice(cause: str, remedy: str) -> Finding:
    return Finding(CHECK, f"jobs on several nodes are refused here: {cause}", remedy, "advice")
