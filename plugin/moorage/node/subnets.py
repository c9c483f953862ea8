"""The networks that the Podman of a job makes of itself, out of a pool that the site gives."""

from __future__ import annotations

from typing import Final

from moorage.node import routes
from moorage.node.hostfiles import Node

# Into so many times two parts the pool is divided: one is the default network's, in others all further ones are made.
HALVINGS: Final = 2
LEAST: Final = 2


def choose(node: Node, pool: str) -> tuple[str, ...]:
    """The parts of the pool; those to which this node has a route are left out, unless too few remain."""
    return free(node, pool) or tuple(routes.free(pool, _bits(pool), ()))


def free(node: Node, pool: str) -> tuple[str, ...]:
    """The parts to which this node has no route; none where they are too few."""
    found = tuple(routes.free(pool, _bits(pool), routes.masked(node)))
    return found if len(found) >= LEAST else ()


def _bits(pool: str) -> int:
    return int(pool.rpartition("/")[2]) + HALVINGS
