"""A node that Slurm takes for a larger one, and on which it hands out more cores than there are."""

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
    """The first node with so many; the cpuset of a job that has them all is made of those that exist."""
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
    """What nodes are made of, and who looks after their health, is read at the start alone."""
    lab.first.shell.run(["systemctl", "restart", "slurmctld", "slurmd"])
    lab.wait_idle()
