"""What Moorage costs the jobs that do not ask for it."""

from __future__ import annotations

import os
import statistics
from contextlib import ExitStack
from dataclasses import dataclass
from math import sqrt

import pytest

from support.figures import Figures
from virtual.absence import without_moorage
from virtual.cluster import Cluster
from virtual.shell import Shell

# A job takes seconds under emulation: as many as were promised belong to the full tests.
JOBS = 200 if os.environ.get("MOORAGE_FULL") else 40
BLOCK = 5
PROMISED = 5.0
HERTZ = 100
# How long a process takes natively to come and go, in ms: what a guest takes longer is its emulation.
NATIVE = 1.0
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
SPAWN = r"""
begun=$EPOCHREALTIME
for ((i = 0; i < 100; i++)); do /bin/sh -c :; done
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
    """In blocks with and without Moorage in turn, each second pair in the other order."""
    shell = lab.first.shell
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    for pair in range(JOBS // BLOCK // 2):
        for installed in (pair % 2 == 0, pair % 2 == 1):
            costs[installed].append(block(shell, installed))
    slowness = max(1.0, spawn(shell) / NATIVE)
    for kind in ("wall", "busy"):
        with_it, without = ([getattr(cost, kind) for cost in costs[installed]] for installed in (True, False))
        differences = [one - other for one, other in zip(with_it, without, strict=True)]
        more, noise = statistics.mean(differences), statistics.stdev(differences) / sqrt(len(differences))
        what = f"plain job, {kind}: {statistics.mean(without):.0f} ms, more with Moorage (noise {noise:.1f} ms)"
        figures.add(what, more, "ms", at_most=max(PROMISED * slowness, 2 * noise))


def block(shell: Shell, installed: bool) -> Cost:
    with ExitStack() as stack:
        if not installed:
            stack.enter_context(without_moorage(shell))
        said = shell.output("bash", "-c", LOOP, "bash", str(BLOCK), user="bob").split()
    begun, ended, busy, started, busy_after, started_after = map(float, said)
    return Cost(
        (ended - begun) * 1000 / BLOCK, (busy_after - busy) * 1000 / HERTZ / BLOCK, (started_after - started) / BLOCK
    )


def spawn(shell: Shell) -> float:
    begun, ended = map(float, shell.output("bash", "-c", SPAWN).split())
    return (ended - begun) * 1000 / 100
