"""The addresses of a job's nodes on the fabric, found from their names by the site's rule, never told by the job."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moorage.common.errors import MoorageError
from moorage.node import network_demands
from moorage.root.net.fabric import Fabric, Site

if TYPE_CHECKING:
    from moorage.linux.links import Links

HOST: Final = "{host}"
WAIT: Final = 20.0
LONGEST_FILE: Final = 1 << 20
Answers = Mapping[str, Sequence[IPv4Address]]


@dataclass(frozen=True)
class Rule:
    """The site's rule: how to find a node's address on the fabric from its name, and by which interface."""

    # The name to ask a resolver for, such as {host}-ib.
    host: str = HOST
    # A file like /etc/hosts. If it is set, no resolver is asked.
    file: Path | None = None
    # If it is not set, the interface by which the other nodes are reached.
    interface: str | None = None


@dataclass(frozen=True)
class Route:
    interface: str
    source: IPv4Address


@dataclass(frozen=True)
class Peers:
    """The address of every node of the job in Slurm's order, this one at `place`, and the interface to reach them."""

    interface: str
    hosts: tuple[IPv4Address, ...]
    place: int


def settle(
    answers: Answers,
    own: str,
    routes: Mapping[IPv4Address, Route | None],
    local: Mapping[str, Iterable[IPv4Address]],
    wanted: str | None = None,
) -> Peers:
    """Decide from the names' addresses and this host's routes and addresses; a MoorageError if that is not possible."""
    if own not in answers:
        raise MoorageError(f"this node, {own}, is not among the nodes of the job", code="M-FABRIC-10")
    interface = wanted or _interface(answers, own, routes)
    hosts = [
        _own(own, answers, routes, local.get(interface, ()), interface)
        if name == own
        else _peer(name, answers[name], routes, interface)
        for name in answers
    ]
    for address in hosts:
        if hosts.count(address) > 1:
            twice = [name for name, other in zip(answers, hosts, strict=True) if other == address]
            raise MoorageError(f"nodes {' and '.join(twice[:2])} have the same address, {address}", code="M-FABRIC-11")
    return Peers(interface, tuple(hosts), list(answers).index(own))


def _interface(answers: Answers, own: str, routes: Mapping[IPv4Address, Route | None]) -> str:
    """The only interface by which every other node can be reached."""
    reaching: list[set[str]] = []
    for name, addresses in answers.items():
        if name != own:
            found = {route.interface for address in addresses if (route := routes.get(address))}
            if not found:
                raise MoorageError(f"node {name} cannot be reached: {_shown(addresses)}", code="M-FABRIC-12")
            reaching.append(found)
    if not reaching:
        raise MoorageError("a job on one node has no fabric")
    common = sorted(set.intersection(*reaching))
    if len(common) != 1:
        raise MoorageError(
            f"the nodes of the job are reached by {' and '.join(sorted(set.union(*reaching)))}:"
            " say in the configuration which interface carries the fabric",
            code="M-FABRIC-13",
        )
    return common[0]


def _peer(
    name: str, addresses: Sequence[IPv4Address], routes: Mapping[IPv4Address, Route | None], interface: str
) -> IPv4Address:
    there = [address for address in addresses if (route := routes.get(address)) and route.interface == interface]
    if len(there) != 1:
        how_many = "more than one" if there else "no"
        raise MoorageError(
            f"node {name} has {how_many} address on {interface}: {_shown(addresses)}", code="M-FABRIC-14"
        )
    return there[0]


def _own(
    own: str,
    answers: Answers,
    routes: Mapping[IPv4Address, Route | None],
    local: Iterable[IPv4Address],
    interface: str,
) -> IPv4Address:
    """This node's address for other nodes. Debian tells a host about itself 127.0.1.1 (seen on 13)."""
    mine = set(local)
    here = [address for address in answers[own] if address in mine]
    if not here and all(address.is_loopback for address in answers[own]):
        others = [address for name, addresses in answers.items() if name != own for address in addresses]
        sources = {route.source for address in others if (route := routes.get(address))} & mine
        here = sorted(sources)
    if len(here) != 1:
        how_many = "more than one" if here else "no"
        raise MoorageError(
            f"this node, {own}, has {how_many} address on {interface}: {_shown(answers[own])}", code="M-FABRIC-15"
        )
    return here[0]


def look_up(names: Sequence[str], rule: Rule, wait: float = WAIT) -> Answers:
    """The addresses of each name."""
    if rule.file:
        return _listed(names, rule.file)
    if rule.host.count(HOST) != 1:
        raise MoorageError(
            f"the rule for hosts on the fabric, {rule.host!a}, does not hold {HOST} once", code="M-FABRIC-16"
        )
    return _resolved(names, rule.host, wait)


def _listed(names: Sequence[str], path: Path) -> Answers:
    answers: dict[str, list[IPv4Address]] = {name: [] for name in names}
    with path.open(errors="replace") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            # Every host in this file may send into fabrics of jobs.
            raise MoorageError(f"{path} can be written by others than root", code="M-FABRIC-17")
        text = file.read(LONGEST_FILE + 1)
    if len(text) > LONGEST_FILE:
        # Reading only the beginning could cut a name, which may then be that of another node.
        raise MoorageError(f"{path} is longer than {LONGEST_FILE >> 20} MiB", code="M-FABRIC-18")
    for number, line in enumerate(text.splitlines(), 1):
        address, *hosts = line.partition("#")[0].split() or [""]
        for name in set(hosts).intersection(answers):
            answers[name].append(_address(address, f"{path}, line {number}"))
    for name, addresses in answers.items():
        if not addresses:
            raise MoorageError(f"node {name} is not in {path}", code="M-FABRIC-19")
    return answers


def _address(text: str, place: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except AddressValueError as error:
        raise MoorageError(f"{place}: {text[:40]!a} is no IPv4 address", code="M-FABRIC-20") from error


def _resolved(names: Sequence[str], form: str, wait: float) -> Answers:
    """Ask the resolver in another thread: without an answer it may take any time, and cannot be interrupted."""
    answers: dict[str, list[IPv4Address] | OSError] = {}

    def ask() -> None:
        for name in names:
            try:
                answers[name] = _ask(form.replace(HOST, name))
            except OSError as error:
                answers[name] = error

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(wait)
    found: dict[str, list[IPv4Address]] = {}
    for name in names:
        host = form.replace(HOST, name)
        match answers.get(name):
            case None:
                raise MoorageError(f"the address of {host} was not found in {wait:g} s", code="M-FABRIC-21")
            case OSError() as error:
                raise MoorageError(f"{host} has no address: {error.strerror or error}", code="M-FABRIC-22") from error
            case addresses:
                found[name] = addresses
    return found


def _ask(host: str) -> list[IPv4Address]:
    entries = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
    return sorted({IPv4Address(place[0]) for *_, place in entries})


def _shown(addresses: Sequence[IPv4Address]) -> str:
    return ", ".join(map(str, addresses[:4])) or "none is known"


def fabric(job: int, names: Sequence[str], own: str, rule: Rule, site: Site) -> Fabric:
    """The fabric of a job with these nodes, on this node."""
    # Imported here: other modules need only the timeout of this one.
    from moorage.linux.links import links

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
        # Links come and go meanwhile. One without a name here is new, and carries no fabric.
        if name := names.get(index):
            local.setdefault(name, []).append(address.ip)
    return settle(answers, own, routes, local, rule.interface)


def _route(address: IPv4Address, here: Links, names: dict[int, str]) -> Route | None:
    found = here.route(address)
    return Route(names[found[0]], found[1]) if found and found[0] in names else None
