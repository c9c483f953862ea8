"""How containers reach the outside: who carries their packets, and why that one."""

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

# Of root's making, and no way at all: Podman knows neither, see podman.stand_in.
KERNEL: Final = "kernel"
NONE: Final = "none"

# The first and the last (before this one) Podman that can use it for its bridge networks.
PODMANS: Final[Mapping[str, tuple[Version, Version | None]]] = {
    "pasta": ((5,), None),
    "slirp4netns": ((4, 9), (6,)),
    KERNEL: ((5,), None),
    NONE: ((5,), None),
}
# pasta is named by the day it was made.
OLDEST: Final[Mapping[str, Version]] = {"pasta": (2023, 12, 4), "slirp4netns": (1, 0)}

PROFILES: Final = "/sys/kernel/security/apparmor/profiles"
PASTA_CONFINED: Final = "pasta (enforce)"
PASTA_RULES: Final = "/etc/apparmor.d/local/pasta"
# The bits of a network of slirp4netns.
BETWEEN: Final = 24
# What Podman reads: the second where the first names nothing but the stub of systemd's resolver.
RESOLVERS: Final = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")


@dataclass(frozen=True)
class Offer:
    """What a node has: what Podman and the helpers say of their versions, who cannot work here and why, and how fast
    each was when it was measured.
    """

    podman: str
    helpers: Mapping[str, str]
    hindered: Mapping[str, str] = field(default_factory=dict)
    speeds: Mapping[str, Speed] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    driver: str
    reason: str


def choose(offer: Offer, rule: Uplink, wanted: str | None = None) -> Choice:
    """The driver for a job: what its user wants, else the fastest that works on this node, or the first by order."""
    obstacles = {driver: obstacle(driver, offer, rule) for driver in UPLINKS}
    if wanted:
        return _wanted(wanted, obstacles, rule)
    usable = [driver for driver in _ordered(rule) if not obstacles[driver]]
    if not usable:
        causes = "; ".join(f"{driver}: {cause}" for driver, cause in obstacles.items() if cause)
        raise UserError(f"no way for containers to reach the outside ({causes})", "install one that fits, or allow it")
    if rule.by == "measure":
        # No way at all is none that could be the fastest.
        usable = [driver for driver in usable if driver != NONE] or usable
    first = Choice(usable[0], _reason(usable[0], obstacles, rule))
    return first if rule.by == "order" or len(usable) == 1 else _fastest(usable, offer.speeds, first)


def obstacle(driver: str, offer: Offer, rule: Uplink) -> str:
    """Why the driver cannot be used here; empty if it can."""
    # By having no way out nobody is given anything.
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
        return "mute when asked for its version"
    return f"too old: {said}" if number(said) < OLDEST[driver] else offer.hindered.get(driver, "")


def explain(offer: Offer, rule: Uplink, wanted: str | None = None) -> str:
    """The whole decision in a few lines."""
    order = f"site's order: {', '.join(_ordered(rule))}{'' if rule.by == 'order' else ', where speeds are not known'}"
    lines = [f"Podman here: {offer.podman or 'none'}", order]
    for driver in UPLINKS:
        lines.append(f"{driver}: {obstacle(driver, offer, rule) or f'can be used{_particulars(driver, offer)}'}")
    try:
        choice = choose(offer, rule, wanted)
    except UserError as error:
        return "\n".join([*lines, f"chosen: nothing, {error}"])
    return "\n".join([*lines, f"chosen: {choice.driver}, {choice.reason}"])


def _particulars(driver: str, offer: Offer) -> str:
    known = [offer.helpers[driver]] if driver in offer.helpers else []
    if speed := offer.speeds.get(driver):
        known.append(f"{speed.outward} Gbit/s out, {speed.inward} in, answers in {speed.round_trip} us")
    return f" ({'; '.join(known)})" if known else ""


def unmeasured(offer: Offer, rule: Uplink) -> list[str]:
    """Of those among which the fastest would be chosen; none where there is no choice, or another rule."""
    usable = [driver for driver in _ordered(rule) if driver != NONE and not obstacle(driver, offer, rule)]
    compared = usable if rule.by == "measure" and len(usable) > 1 else []
    return [driver for driver in compared if driver not in offer.speeds]


def hindered(node: Node, rule: Uplink) -> dict[str, str]:
    """What this node lacks, by driver; of those that are allowed, for to find out costs something."""
    found = {driver: next(causes(node, rule), "") for driver, causes in HINDRANCES.items() if driver in rule.allowed}
    return {driver: cause for driver, cause in found.items() if cause}


def _hinders_pasta(node: Node, _: Uplink) -> Iterator[str]:
    # Debian confines it to the usual places of run directories, which those of jobs are not (seen on 13).
    if PASTA_CONFINED in node.text(PROFILES).splitlines() and RUN.as_posix() not in node.text(PASTA_RULES):
        yield f"AppArmor keeps it out of {RUN}, see {PASTA_RULES}"
    # It takes over the addresses of the way out; an older one does not start, a newer one leads nowhere.
    if not routes.leads_out(node):
        yield "this node has no default route, which it follows"


def _hinders_kernel(node: Node, rule: Uplink) -> Iterator[str]:
    try:
        network_demands.forwarding()
    except UserError as error:
        yield error.what
    if not routes.leads_out(node, by=[routes.IPV4]):
        yield "this node has no default route for IPv4, which it follows"
    if not resolvers(node, rule):
        yield "the resolvers of this node are its own, where jobs do not reach them: name others in uplink.resolvers"


def _hinders_slirp4netns(node: Node, rule: Uplink) -> Iterator[str]:
    if between(node, rule) is None:
        yield f"uplink.pool is {rule.pool}, and this node has routes to all of it"


HINDRANCES: Final = {"pasta": _hinders_pasta, "slirp4netns": _hinders_slirp4netns, KERNEL: _hinders_kernel}


def between(node: Node, rule: Uplink) -> str | None:
    """The network between containers and slirp4netns: one of the pool, to which this node has no route.

    It would take 10.0.2.0/24, and nothing that the site has there could be reached.
    """
    return next(routes.free(rule.pool, BETWEEN, routes.masked(node)), None)


def resolvers(node: Node, rule: Uplink) -> tuple[str, ...]:
    """Whom jobs ask for names by the uplink `kernel`, which leads to no address of the node itself."""
    if rule.resolvers:
        return rule.resolvers
    for file in RESOLVERS:
        words = [line.split() for line in node.text(file).splitlines()]
        named = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
        if elsewhere := tuple(address for address in named if ":" not in address and not _is_own(address)):
            return elsewhere
    return ()


def _is_own(address: str) -> bool:
    """Whether it is one of this node's: nobody else's can be taken."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
        somebody.bind((address, 0))
        return True
    return False


def _ordered(rule: Uplink) -> Sequence[str]:
    """All that is allowed: what the order does not name comes last."""
    return [driver for driver in dict.fromkeys((*rule.order, *rule.allowed)) if driver in rule.allowed]


def _wanted(driver: str, obstacles: Mapping[str, str], rule: Uplink) -> Choice:
    if cause := obstacles.get(driver, "unknown"):
        others = [name for name, obstacle in obstacles.items() if not obstacle and name != NONE]
        remedy = f"leave uplink away, or ask for {' or '.join(others)}" if others else "tell the site"
        raise UserError(f"uplink={driver} cannot be had on this node ({cause})", remedy)
    return Choice(driver, "the user asked for it")


def _fastest(usable: Sequence[str], speeds: Mapping[str, Speed], first: Choice) -> Choice:
    """By the slower of both directions, where all are known; else what is first in the site's order."""
    if unknown := [driver for driver in usable if driver not in speeds]:
        return Choice(first.driver, f"{first.reason}; not measured here: {', '.join(unknown)}")
    fastest = max(usable, key=lambda driver: speeds[driver].worth)
    figures = ", ".join(f"{driver} {speeds[driver].worth:.2f}" for driver in usable)
    return Choice(fastest, f"the fastest here: {figures} Gbit/s in the slower direction")


def _reason(driver: str, obstacles: Mapping[str, str], rule: Uplink) -> str:
    preferred = takewhile(lambda other: other != driver, _ordered(rule))
    causes = "; ".join(f"{other}: {obstacles[other]}" for other in preferred if obstacles[other])
    return causes or "the first in the site's order"
