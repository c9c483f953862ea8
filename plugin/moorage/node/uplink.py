"""The uplink: which driver connects containers with the outside, and why that one."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from moorage.common.errors import UserError
from moorage.common.job import RUN
from moorage.common.spec import UPLINKS
from moorage.node import network_demands, programs, routes
from moorage.node.config.schema import Uplink
from moorage.node.hostfiles import Node
from moorage.node.programs import Version, number, shown
from moorage.node.uplink_speed import Speed

# The gateway that root makes, and no uplink at all. Podman knows neither, see podman_conf.stand_in.
KERNEL: Final = "kernel"
NONE: Final = "none"

# The first Podman that can use the driver for bridge networks, and the first that no longer can.
PODMANS: Final[Mapping[str, tuple[Version, Version | None]]] = {
    "pasta": ((5,), None),
    "slirp4netns": ((4, 9), (6,)),
    KERNEL: ((5,), None),
    NONE: ((5,), None),
}
# pasta's version is a date.
OLDEST: Final[Mapping[str, Version]] = {"pasta": (2023, 12, 4), "slirp4netns": (1, 0)}

PROFILES: Final = "/sys/kernel/security/apparmor/profiles"
PASTA_CONFINED: Final = "pasta (enforce)"
PASTA_RULES: Final = "/etc/apparmor.d/local/pasta"
# The prefix length of slirp4netns' network.
BETWEEN: Final = 24
# Podman reads the second file if the first names only the stub of systemd-resolved.
RESOLVERS: Final = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")


@dataclass(frozen=True)
class Offer:
    """What this node offers: versions, why a driver cannot work here, and measured speeds."""

    podman: str
    helpers: Mapping[str, str]
    hindered: Mapping[str, str] = field(default_factory=dict)
    speeds: Mapping[str, Speed] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    driver: str
    reason: str


def choose(offer: Offer, rule: Uplink, wanted: str | None = None) -> Choice:
    """The driver for a job: the one that its user wants, else the fastest that works here, or the first by order."""
    obstacles = {driver: obstacle(driver, offer, rule) for driver in UPLINKS}
    if wanted:
        return _wanted(wanted, obstacles, rule)
    usable = [driver for driver in _ordered(rule) if not obstacles[driver]]
    if not usable:
        causes = "; ".join(f"{driver}: {cause}" for driver, cause in obstacles.items() if cause)
        raise UserError(f"no uplink can be used ({causes})", "install one that fits, or allow it", code="M-UPLINK-5")
    if rule.by == "measure":
        # `none` has no speed.
        usable = [driver for driver in usable if driver != NONE] or usable
    first = Choice(usable[0], _reason(usable[0], obstacles, rule))
    return first if rule.by == "order" or len(usable) == 1 else _fastest(usable, offer.speeds, first)


def obstacle(driver: str, offer: Offer, rule: Uplink) -> str:
    """Why the driver cannot be used here; empty if it can."""
    # `none` gives a job nothing, so it needs no permission.
    if driver not in rule.allowed and driver != NONE:
        return "not allowed by uplink.allowed"
    first, end = PODMANS[driver]
    if number(offer.podman) < first:
        return f"needs Podman {shown(first)} or newer"
    if end and number(offer.podman) >= end:
        return f"Podman {shown(end)} and newer cannot use it"
    return _unfit(driver, offer)


def _unfit(driver: str, offer: Offer) -> str:
    if driver not in programs.UPLINKS:
        return offer.hindered.get(driver, "")
    if driver not in offer.helpers:
        return "not installed"
    said = offer.helpers[driver]
    if not number(said):
        return "silent about its version"
    return f"too old: {said}" if number(said) < OLDEST[driver] else offer.hindered.get(driver, "")


def explain(offer: Offer, rule: Uplink, wanted: str | None = None) -> str:
    """The whole decision in a few lines."""
    where = "" if rule.by == "order" else ", where speeds are not known"
    order = f"order in uplink.order: {', '.join(_ordered(rule))}{where}"
    lines = [f"Podman here: {offer.podman or 'none'}", order]
    for driver in UPLINKS:
        lines.append(f"{driver}: {obstacle(driver, offer, rule) or f'can be used{_particulars(driver, offer)}'}")
    try:
        choice = choose(offer, rule, wanted)
    except UserError as error:
        return "\n".join([*lines, f"chosen: nothing, {error.line}"])
    return "\n".join([*lines, f"chosen: {choice.driver}, {choice.reason}"])


def _particulars(driver: str, offer: Offer) -> str:
    known = [offer.helpers[driver]] if driver in offer.helpers else []
    if speed := offer.speeds.get(driver):
        known.append(f"{speed.outward} Gbit/s out, {speed.inward} in, answers in {speed.round_trip} us")
    return f" ({'; '.join(known)})" if known else ""


def unmeasured(offer: Offer, rule: Uplink) -> list[str]:
    """The drivers without measured speeds, if the choice depends on speeds."""
    usable = [driver for driver in _ordered(rule) if driver != NONE and not obstacle(driver, offer, rule)]
    compared = usable if rule.by == "measure" and len(usable) > 1 else []
    return [driver for driver in compared if driver not in offer.speeds]


def hindered(node: Node, rule: Uplink) -> dict[str, str]:
    """Why drivers cannot work here, by driver. Checks only allowed drivers: probing is expensive."""
    found = {driver: next(causes(node, rule), "") for driver, causes in HINDRANCES.items() if driver in rule.allowed}
    return {driver: cause for driver, cause in found.items() if cause}


def _hinders_pasta(node: Node, _: Uplink) -> Iterator[str]:
    # Debian's profile allows only the usual run directories, not those of jobs (seen on 13).
    if PASTA_CONFINED in node.text(PROFILES).splitlines() and RUN.as_posix() not in node.text(PASTA_RULES):
        yield f"AppArmor keeps it out of {RUN}, see {PASTA_RULES}"
    # It copies the addresses of the default route. Without one old pasta does not start, newer leads nowhere.
    if not routes.leads_out(node):
        yield "this node has no default route"


def _hinders_kernel(node: Node, rule: Uplink) -> Iterator[str]:
    try:
        network_demands.forwarding(node)
    except UserError as error:
        yield error.what
    if not routes.leads_out(node, by=[routes.IPV4]):
        yield "this node has no default route for IPv4"
    if not resolvers(node, rule):
        yield "jobs cannot reach the resolvers of this node, which run on it: name others in uplink.resolvers"


def _hinders_slirp4netns(node: Node, rule: Uplink) -> Iterator[str]:
    if between(node, rule) is None:
        yield f"uplink.pool is {rule.pool}, and this node has routes to all of it"


HINDRANCES: Final = {"pasta": _hinders_pasta, "slirp4netns": _hinders_slirp4netns, KERNEL: _hinders_kernel}


def between(node: Node, rule: Uplink) -> str | None:
    """The network between containers and slirp4netns: one of the pool, to which this node has no route.

    slirp4netns' own default, 10.0.2.0/24, would hide what the site has there.
    """
    return next(routes.free(rule.pool, BETWEEN, routes.masked(node)), None)


def resolvers(node: Node, rule: Uplink) -> tuple[str, ...]:
    """The resolvers of jobs with the uplink `kernel`: it does not lead to addresses of the node itself."""
    if rule.resolvers:
        return rule.resolvers
    for file in RESOLVERS:
        words = [line.split() for line in node.text(file).splitlines()]
        named = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
        if elsewhere := tuple(address for address in named if ":" not in address and not _is_own(address)):
            return elsewhere
    return ()


def _is_own(address: str) -> bool:
    """Whether the address is this node's own: only such an address can be bound."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
        somebody.bind((address, 0))
        return True
    return False


def _ordered(rule: Uplink) -> Sequence[str]:
    """The allowed drivers; those that uplink.order does not name come last."""
    return [driver for driver in dict.fromkeys((*rule.order, *rule.allowed)) if driver in rule.allowed]


def _wanted(driver: str, obstacles: Mapping[str, str], rule: Uplink) -> Choice:
    if cause := obstacles.get(driver, "unknown"):
        others = [name for name, obstacle in obstacles.items() if not obstacle and name != NONE]
        remedy = f"leave uplink away, or ask for {' or '.join(others)}" if others else "tell the site"
        raise UserError(f"uplink={driver} cannot be had on this node ({cause})", remedy, code="M-UPLINK-6")
    return Choice(driver, "the user asked for it")


def _fastest(usable: Sequence[str], speeds: Mapping[str, Speed], first: Choice) -> Choice:
    """The fastest driver by its slower direction; the first in uplink.order if a speed is not known."""
    if unknown := [driver for driver in usable if driver not in speeds]:
        return Choice(first.driver, f"{first.reason}; not measured here: {', '.join(unknown)}")
    fastest = max(usable, key=lambda driver: speeds[driver].worth)
    figures = ", ".join(f"{driver} {speeds[driver].worth:.2f}" for driver in usable)
    return Choice(fastest, f"the fastest here: {figures} Gbit/s in the slower direction")


def _reason(driver: str, obstacles: Mapping[str, str], rule: Uplink) -> str:
    preferred = takewhile(lambda other: other != driver, _ordered(rule))
    causes = "; ".join(f"{other}: {obstacles[other]}" for other in preferred if obstacles[other])
    return causes or "the first in uplink.order"
