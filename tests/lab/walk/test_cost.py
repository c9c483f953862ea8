"""What Moorage costs the jobs that do not ask for it."""

from __future__ import annotations

import os
import statistics
from contextlib import ExitStack
from dataclasses import dataclass
from math import sqrt

import pytest

from support.figures import Figures
from virtual.guest.cluster import Cluster
from virtual.guest.shell import Shell
from virtual.guest.without_moorage import without_moorage

pytestmark = pytest.mark.long

# A job takes seconds under emulation: as many as were promised belong to the full tests.
JOBS = 200 if os.environ.get("MOORAGE_FULL") else 40
BLOCK = 5
HERTZ = 100
# All that the guest's processors did meanwhile, with what Slurm's daemons do after a job's end.
LOOP = r"""
stat() { awk '$1 == "cpu" { busy = $2 + $3 + $4 + $7 + $8 } $1 == "processes" { print busy, $2 }' /proc/stat; }
before=$(stat) begun=$EPOCHREALTIME
for ((i = 0; i < $1; i++)); do srun --quiet --nodelist=n1 --mem=50M true; done
ended=$EPOCHREALTIME
# Nothing is changed under the hooks of a job that is not yet over.
while squeue --noheader | grep -q .; do sleep 0.2; done
echo "$begun $ended $before $(stat)"
"""
# The least that a hook would cost which does more than look whether it is wanted.
PYTHON = r"""
begun=$EPOCHREALTIME
for i in 1 2 3; do /opt/moorage/bin/python3 -I -c pass; done
echo "$begun $EPOCHREALTIME"
"""


@dataclass(frozen=True)
class Cost:
    """Of one job: in ms how long it took and what the processors did, and how many processes and threads began."""

    wall: float
    busy: float
    started: float


@pytest.mark.parametrize("lab", ["trixie"], indirect=True)
def test_plain_jobs_do_not_notice(lab: Cluster, figures: Figures) -> None:
    """In blocks with and without Moorage in turn, each second pair in the other order.

    Milliseconds are held to their promise natively, where they are not lost in the noise.
    """
    shell = lab.first.shell
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    for pair in range(JOBS // BLOCK // 2):
        for installed in (pair % 2 == 0, pair % 2 == 1):
            costs[installed].append(block(shell, installed))
    at_most = start_of_python(shell)
    for kind in ("wall", "busy"):
        with_it, without = ([getattr(cost, kind) for cost in costs[installed]] for installed in (True, False))
        differences = [one - other for one, other in zip(with_it, without, strict=True)]
        more, noise = statistics.mean(differences), statistics.stdev(differences) / sqrt(len(differences))
        what = f"plain job, {kind}: {statistics.mean(without):.0f} ms, more with Moorage (noise {noise:.1f} ms)"
        figures.add(what, more, "ms", at_most=at_most)
    started = [statistics.mean(cost.started for cost in costs[installed]) for installed in (True, False)]
    figures.add(
        f"processes and threads that a plain job starts: {started[1]:.1f}, more with Moorage",
        started[0] - started[1],
        "",
    )


def block(shell: Shell, installed: bool) -> Cost:
    with ExitStack() as stack:
        if not installed:
            stack.enter_context(without_moorage(shell))
        said = shell.output("bash", "-c", LOOP, "bash", str(BLOCK), user="bob").split()
    begun, ended, busy, started, busy_after, started_after = map(float, said)
    return Cost(
        (ended - begun) * 1000 / BLOCK, (busy_after - busy) * 1000 / HERTZ / BLOCK, (started_after - started) / BLOCK
    )


def start_of_python(shell: Shell) -> float:
    begun, ended = map(float, shell.output("bash", "-c", PYTHON).split())
    return (ended - begun) * 1000 / 3
