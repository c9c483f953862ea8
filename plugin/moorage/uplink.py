"""How containers reach the outside: which program carries their packets, and why that one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from moorage.config import Uplink
from moorage.errors import UserError
from moorage.job import RUN
from moorage.node import Node
from moorage.programs import Version, number, shown
from moorage.spec import UPLINKS

# The first and the last (before this one) Podman that can use it for its bridge networks.
PODMANS: Final[Mapping[str, tuple[Version, Version | None]]] = {"pasta": ((5,), None), "slirp4netns": ((4, 9), (6,))}
# pasta is named by the day it was made.
OLDEST: Final[Mapping[str, Version]] = {"pasta": (2023, 12, 4), "slirp4netns": (1, 0)}

PROFILES: Final = "/sys/kernel/security/apparmor/profiles"
PASTA_CONFINED: Final = "pasta (enforce)"
PASTA_RULES: Final = "/etc/apparmor.d/local/pasta"


@dataclass(frozen=True)
class Offer:
    """What a node has: what Podman and the helpers say of their versions, and which helper cannot work here and why."""

    podman: str
    helpers: Mapping[str, str]
    hindered: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    driver: str
    reason: str


def choose(offer: Offer, rule: Uplink, wanted: str | None = None) -> Choice:
    """The driver for a job: what its user wants, else the first in the site's order that works on this node."""
    obstacles = {driver: obstacle(driver, offer, rule) for driver in UPLINKS}
    if wanted:
        return _wanted(wanted, obstacles, rule)
    usable = [driver for driver in _ordered(rule) if not obstacles[driver]]
    if not usable:
        causes = "; ".join(f"{driver}: {cause}" for driver, cause in obstacles.items())
        raise UserError(f"no way for containers to reach the outside ({causes})", "install one that fits, or allow it")
    return Choice(usable[0], _reason(usable[0], obstacles, rule))


def obstacle(driver: str, offer: Offer, rule: Uplink) -> str:
    """Why the driver cannot be used here; empty if it can."""
    if driver not in rule.allowed:
        return "not allowed by uplink.allowed"
    first, end = PODMANS[driver]
    if number(offer.podman) < first:
        return f"needs Podman {shown(first)} or newer"
    if end and number(offer.podman) >= end:
        return f"Podman {shown(end)} and newer cannot use it"
    return _unfit(driver, offer)


def _unfit(driver: str, offer: Offer) -> str:
    if driver not in offer.helpers:
        return "not installed"
    said = offer.helpers[driver]
    if not number(said):
        return "mute when asked for its version"
    return f"too old: {said}" if number(said) < OLDEST[driver] else offer.hindered.get(driver, "")


def explain(offer: Offer, rule: Uplink, wanted: str | None = None) -> str:
    """The whole decision in a few lines."""
    lines = [f"Podman here: {offer.podman or 'none'}", f"site's order: {', '.join(_ordered(rule))}"]
    for driver in UPLINKS:
        cause = obstacle(driver, offer, rule)
        lines.append(f"{driver}: {cause or f'can be used ({offer.helpers[driver]})'}")
    try:
        choice = choose(offer, rule, wanted)
    except UserError as error:
        return "\n".join([*lines, f"chosen: nothing, {error}"])
    return "\n".join([*lines, f"chosen: {choice.driver}, {choice.reason}"])


def hindered(node: Node) -> dict[str, str]:
    """Debian confines pasta to the usual places of run directories, which those of jobs are not (seen on 13)."""
    if PASTA_CONFINED not in node.text(PROFILES).splitlines() or RUN.as_posix() in node.text(PASTA_RULES):
        return {}
    return {"pasta": f"AppArmor keeps it out of {RUN}, see {PASTA_RULES}"}


def _ordered(rule: Uplink) -> Sequence[str]:
    """All that is allowed: what the order does not name comes last."""
    return [driver for driver in dict.fromkeys((*rule.order, *rule.allowed)) if driver in rule.allowed]


def _wanted(driver: str, obstacles: Mapping[str, str], rule: Uplink) -> Choice:
    if cause := obstacles.get(driver, "unknown"):
        others = [name for name, obstacle in obstacles.items() if not obstacle]
        remedy = f"leave uplink away, or ask for {' or '.join(others)}" if others else "tell the site"
        raise UserError(f"uplink={driver} cannot be had on this node ({cause})", remedy)
    return Choice(driver, "the user asked for it")


def _reason(driver: str, obstacles: Mapping[str, str], rule: Uplink) -> str:
    preferred = takewhile(lambda other: other != driver, dict.fromkeys((*rule.order, *rule.allowed)))
    return "; ".join(f"{other}: {obstacles[other]}" for other in preferred) or "the first in the site's order"
