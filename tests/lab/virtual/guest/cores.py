"""A node that claims more cores than it has, so that Slurm hands out cores that do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .cluster import Cluster

NODES = "/etc/slurm/nodes.conf"
KEPT = f"{NODES}.kept"
_LARGER = rf"""
cp --archive {NODES} {KEPT}
sed --in-place '1i SlurmdParameters=config_overrides
s/^\(NodeName=n1 .*CoresPerSocket=\)[0-9]*/\1'"$1"/ {NODES}
"""


@contextmanager
def more_cores(lab: Cluster, count: int) -> Iterator[None]:
    """The first node claims this many cores; the cpuset of a job that gets all has only those that exist."""
    shell = lab.first.shell
    lab.wait_idle()
    shell.run(["sh", "-euc", _LARGER, "sh", str(count)])
    try:
        take_up(lab)
        yield
        lab.wait_idle()
    finally:
        shell.run(["mv", KEPT, NODES])
        take_up(lab)


def take_up(lab: Cluster) -> None:
    """Restart Slurm: it reads nodes and the health check program only at its start."""
    lab.first.shell.run(["systemctl", "restart", "slurmctld", "slurmd"])
    lab.wait_idle()
