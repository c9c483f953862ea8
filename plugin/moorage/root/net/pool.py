"""The small networks that join jobs to their nodes, out of a pool that the site gives."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import Final

from moorage.common.errors import Taken

PREFIX: Final = 30
# So many neighbours of a job's own place are tried.
TRIED: Final = 1024


def choose(pool: IPv4Network, job: int, taken: Sequence[IPv4Network]) -> IPv4Network:
    """A network of two addresses that this node has no route to yet, the same for a job as long as none is taken.

    Taken if there is none, for routes to a pool are those of other jobs.
    """
    count = 1 << max(0, PREFIX - pool.prefixlen)
    size = 1 << 32 - PREFIX
    for step in range(min(count, TRIED)):
        start = int(pool.network_address) + (job + step) % count * size
        network = IPv4Network((start, PREFIX))
        if network.subnet_of(pool) and not any(network.overlaps(other) for other in taken):
            return network
    raise Taken(
        f"no network is free for job {job} in the pool {pool}: this node has other routes there",
        "give the uplink kernel another pool",
    )
