"""How long a node is busy with what a job has left behind."""

from __future__ import annotations

from statistics import median

from support.figures import Figures
from virtual.guest.cluster import Cluster
from virtual.jobs.batch import MOORED, submit
from virtual.probes.idle import ENDS, busy

ROUNDS = 3
# Under emulation, where a start of Python takes most of a second.
AT_MOST = 5.0
SMALL = ("--cpus-per-task=1", "--mem=512M", "--nodelist=n1")
# What stays of any use of Podman until the end: its namespaces, and the process that holds them.
USE = "podman unshare true"


def test_the_node_is_idle_soon_after_the_script(lab: Cluster, figures: Figures) -> None:
    """In turn with plain jobs, of which Slurm has to see the end as well."""
    shell = lab.first.shell
    plain, moored = [], []
    for _ in range(ROUNDS):
        plain.append(busy(shell, submit(shell, ENDS, *SMALL)))
        moored.append(busy(shell, submit(shell, f"{USE}; {ENDS}", MOORED, *SMALL)))
    what = f"end of the script to an idle node, beyond a plain job's {median(plain):.1f} s"
    figures.add(f"{what} ({lab.request.suite})", median(moored) - median(plain), "s", at_most=AT_MOST)
