"""The networks of a job on this node, from the Prolog to the Epilog.

Import this only for a job that has networks: the import of pyroute2 takes longer than the hooks of most jobs.
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
    """The fabric of a job with these nodes, on this node; a UserError if it is not possible."""
    with _told("see the section fabric of moorage.yaml"):
        with links() as here:
            if fault := network_demands.route(here.networks(), IPv4Network(site.subnet)):
                raise fault
        rule = Rule(site.host, site.hosts, site.interface)
        return peers.fabric(job.id, nodes, job.node, rule, _settled(site))


def way_out(job: Job, fabric_port: int, site: gateway.Site) -> Gateway:
    """The gateway of this job (uplink `kernel`); a UserError if it is not possible."""
    with _told("take kernel out of uplink.allowed on this node"):
        return Gateway.of(job.id, fabric_port, site)


def make(state: State, site: schema.Fabric) -> None:
    """Make the networks that the state names. Only the Prolog does this: it can tell the user, and undo all."""
    with _told(f"see what this asks of a node in {EXPLAINED}"):
        if state.fabric:
            fabric.make(state.fabric, _settled(site))
        if state.gateway:
            gateway.make(state.gateway)


def plug(state: State, what: str, descriptor: int) -> None:
    """Put an end of a network into the network namespace that the job's owner has handed over."""
    netns.verify(descriptor, state.job.uid)
    with _told():
        if what == FABRIC and state.fabric:
            fabric.plug(state.fabric, descriptor, warden_protocol.ENDS[what])
        elif what == UPLINK and state.gateway:
            gateway.plug(state.gateway, descriptor, warden_protocol.ENDS[what])
        else:
            raise MoorageError(f"this job has no {what} to plug")


def kept(state: State) -> list[Kept]:
    """The rules that must exist as long as the job."""
    joined, out = state.fabric, state.gateway
    return [
        *([Kept(FABRIC, lambda: fabric.intact(joined), lambda: fabric.mend(joined))] if joined else []),
        *([Kept(UPLINK, lambda: gateway.intact(out), lambda: gateway.mend(out))] if out else []),
    ]


def remove(job: int) -> None:
    """Remove all networks of a job. Its number is enough."""
    # An error about one network does not keep the other one from being removed.
    with ExitStack() as stack:
        stack.callback(gateway.remove, job)
        fabric.remove(job)


def left(job: int) -> list[str]:
    """The links and tables of the job that still exist."""
    families = (nft.IPV4, nft.IPV6, nft.INET, nft.NETDEV)
    tables = {name for family in families for name in nft.names(family) if name == names.table(job)}
    return [*names.links_of(job), *tables]


def _settled(site: schema.Fabric) -> fabric.Site:
    low, high = map(int, site.source_ports.split("-"))
    return fabric.Site(site.port, (low, high), site.flood)


@contextmanager
def _told(remedy: str = "") -> Iterator[None]:
    """Turn errors into UserErrors with a remedy."""
    try:
        yield
    except UserError:
        raise
    except NetlinkError as error:
        cause = f"the kernel refuses a part of the job's network ({os.strerror(error.code)})"
        raise UserError(cause, "load the modules of config/modules-load.d/moorage.conf", code="M-NET-2") from error
    except MoorageError as error:
        if not remedy:
            raise
        raise UserError(str(error), remedy, code=error.code) from error
    except OSError as error:
        if not remedy:
            raise
        raise UserError(str(error), remedy, code="M-NET-3") from error
