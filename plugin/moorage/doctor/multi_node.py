"""Checks for jobs on several nodes. All of it is advice: jobs on one node start without it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from moorage.node import kernel_checks, network_demands, routes, slurmconf
from moorage.node.finding import Finding
from moorage.node.hostfiles import Node

if TYPE_CHECKING:
    from moorage.node.checks import Scene
    from moorage.node.config.schema import Fabric

CHECK: Final = "several nodes"
FIRST_UNPRIVILEGED_PORT: Final = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
LINKS: Final = "/sys/class/net"


def check(scene: Scene) -> Iterator[Finding]:
    """No findings if the policy allows only jobs on one node."""
    site, node, around = scene.config.fabric, scene.node, scene.around
    if scene.config.policy.most_nodes == 1:
        return
    # Another check has a finding for an empty slurm.conf.
    for found in slurmconf.several_nodes(around.slurm_conf, around.slurm) if around.slurm else ():
        yield _advice(found.cause, "set it, or policy.most_nodes to 1", code=found.code)
    for name in sorted(kernel_checks.lacking(kernel_checks.SEVERAL_NODES, node, os.uname().release, scene.facts)):
        yield _advice(
            f"this kernel has no module {name}", "install the rest of the kernel's modules", code="M-FABRIC-1"
        )
    yield from _ports(site, node)
    yield from _routes(site, node)
    yield from _interface(site, node)
    if site.hosts and not site.hosts.is_file():
        yield _advice(
            f"fabric.hosts: there is no {site.hosts}", "put it there, the same on all nodes", code="M-FABRIC-2"
        )


def _ports(site: Fabric, node: Node) -> Iterator[Finding]:
    first = node.number(FIRST_UNPRIVILEGED_PORT)
    low, high = map(int, site.source_ports.split("-"))
    if first is not None and (fault := network_demands.ports(site.port, (low, high), first)):
        yield _advice(fault.what, fault.remedy, code=fault.code)


def _routes(site: Fabric, node: Node) -> Iterator[Finding]:
    if fault := network_demands.route(routes.networks(node), IPv4Network(site.subnet)):
        yield _advice(fault.what, fault.remedy, code=fault.code)


def _interface(site: Fabric, node: Node) -> Iterator[Finding]:
    if site.interface is None:
        return
    mtu = node.number(f"{LINKS}/{site.interface}/mtu")
    there = node.has(f"{LINKS}/{site.interface}")
    fault = (
        network_demands.packets(site.interface, mtu or sys.maxsize)
        if there
        else network_demands.interface(site.interface)
    )
    if fault:
        yield _advice(fault.what, fault.remedy, code=fault.code)


def _advice(cause: str, remedy: str, *, code: str = "") -> Finding:
    return Finding(CHECK, f"jobs on several nodes are refused here: {cause}", remedy, kind="advice", code=code)
