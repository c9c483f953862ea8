"""The network that a fabric lies on: which interface, with which MTU, and who is reached by it."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address

from moorage.linux.links import Links, links
from moorage.node import network_demands
from moorage.root.net.fabric import Fabric, Site
from moorage.root.net.peers import Answers, Peers, Route, Rule, look_up, settle


def fabric(job: int, names: Sequence[str], own: str, rule: Rule, site: Site) -> Fabric:
    """The fabric that a job on these nodes would have here."""
    answers = look_up(names, rule)
    with links() as here:
        peers = _peers(answers, own, rule, here)
        index = here.index(peers.interface)
        if index is None:
            raise network_demands.interface(peers.interface)
        return Fabric.of(job, peers.interface, here.mtu(index), peers.hosts, peers.place, site)


def _peers(answers: Answers, own: str, rule: Rule, here: Links) -> Peers:
    names = here.by_index()
    others = {address for name, addresses in answers.items() if name != own for address in addresses}
    routes = {address: _route(address, here, names) for address in others}
    local: dict[str, list[IPv4Address]] = {}
    for index, address in here.addresses():
        # Links come and go meanwhile; one that has just come carries no fabric.
        if name := names.get(index):
            local.setdefault(name, []).append(address.ip)
    return settle(answers, own, routes, local, rule.interface)


def _route(address: IPv4Address, here: Links, names: dict[int, str]) -> Route | None:
    found = here.route(address)
    return Route(names[found[0]], found[1]) if found and found[0] in names else None
