"""The networks of a job on this node, from the Prolog to the Epilog.

To be imported where a job has any: pyroute2, which all of it stands on, takes longer to import than most jobs' hooks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from pyroute2.netlink.exceptions import NetlinkError

from moorage.common import warden_protocol
from moorage.common.errors import MoorageError, UserError
from moorage.linux import netns, nft
from moorage.linux.links import links
from moorage.node import network_demands
from moorage.root.net import fabric, gateway, names, peers
from moorage.root.net.fabric import Fabric
from moorage.root.net.gateway import Gateway
from moorage.root.net.peers import Rule
from moorage.root.net.rule_watch import Kept

if TYPE_CHECKING:
    from moorage.common.job import Job
    from moorage.node.config import schema
    from moorage.root.state import State

FABRIC: Final = "fabric"
UPLINK: Final = "uplink"
EXPLAINED: Final = "docs/install/network.md"


def join(job: Job, nodes: Sequence[str], site: schema.Fabric) -> Fabric:
    """The fabric that a job on these nodes gets here; a UserError if it cannot be had."""
    with _told("see the section fabric of moorage.yaml"):
        with links() as here:
            if fault := network_demands.route(here.networks(), IPv4Network(site.subnet)):
                raise fault
        rule = Rule(site.host, site.hosts, site.interface)
        return peers.fabric(job.id, nodes, job.node, rule, _settled(site))


def way_out(job: Job, fabric_port: int, site: gateway.Site) -> Gateway:
    """What the uplink `kernel` is for this job; a UserError if it cannot be."""
    with _told("take kernel out of uplink.allowed on this node"):
        return Gateway.of(job.id, fabric_port, site)


def make(state: State, site: schema.Fabric) -> None:
    """What the state names. It is the Prolog's to do: its words reach the user, and it undoes what it has begun."""
    with _told(f"see what this asks of a node in {EXPLAINED}"):
        if state.fabric:
            fabric.make(state.fabric, _settled(site))
        if state.gateway:
            gateway.make(state.gateway)


def plug(state: State, what: str, descriptor: int) -> None:
    """Have an end in the network namespace that the job's owner has handed over."""
    netns.verify(descriptor, state.job.uid)
    with _told():
        if what == FABRIC and state.fabric:
            fabric.plug(state.fabric, descriptor, warden_protocol.ENDS[what])
        elif what == UPLINK and state.gateway:
            gateway.plug(state.gateway, descriptor, warden_protocol.ENDS[what])
        else:
            raise MoorageError(f"this job has no {what} to plug")


def kept(state: State) -> list[Kept]:
    """The rules that have to be there as long as the job is."""
    joined, out = state.fabric, state.gateway
    return [
        *([Kept(FABRIC, lambda: fabric.intact(joined), lambda: fabric.mend(joined))] if joined else []),
        *([Kept(UPLINK, lambda: gateway.intact(out), lambda: gateway.mend(out))] if out else []),
    ]


def remove(job: int) -> None:
    """Whatever there is of any, of which nothing but the job's number has to be known."""
    # What cannot be removed of the one keeps nobody from the other.
    with ExitStack() as stack:
        stack.callback(gateway.remove, job)
        fabric.remove(job)


def left(job: int) -> list[str]:
    """The links and tables of the job that are there."""
    families = (nft.IPV4, nft.IPV6, nft.INET, nft.NETDEV)
    tables = {name for family in families for name in nft.names(family) if name == names.table(job)}
    return [*names.links_of(job), *tables]


def _settled(site: schema.Fabric) -> fabric.Site:
    low, high = map(int, site.source_ports.split("-"))
    return fabric.Site(site.port, (low, high), site.flood)


@contextmanager
def _told(remedy: str = "") -> Iterator[None]:
    """What stands in the way, and what to do about it if that is known."""
    try:
        yield
    except UserError:
        raise
    except NetlinkError as error:
        cause = f"the kernel refuses a part of the job's network ({os.strerror(error.code)})"
        raise UserError(cause, "load the modules of config/modules-load.d/moorage.conf") from error
    except (MoorageError, OSError) as error:
        if not remedy:
            raise
        raise UserError(str(error), remedy) from error
