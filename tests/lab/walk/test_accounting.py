"""What containers use is accounted to their job: sacct says the same as what counts in the job's cgroup."""

from __future__ import annotations

import pytest

from support.figures import Figures
from virtual.guest.cluster import Cluster
from virtual.jobs.batch import MOORED
from virtual.jobs.facts import SHELL, facts
from virtual.jobs.pause import PAUSE, paused
from virtual.probes.job_limits import job_of
from virtual.probes.usage import agents_seconds, by_last_line, by_slurm, by_warden

SECONDS = 20
MEMORY = 350
WITHIN = 5.0
# Two at once, each for that long. Neither as the first process of the container, which no timeout would end.
BURN = f"timeout {SECONDS} dd if=/dev/zero of=/dev/null bs={MEMORY // 2}M"
SCRIPT = f"""
{SHELL}
fact task cat /proc/self/cgroup
podman load --quiet --input /srv/lab/shell.tar
podman run --rm --network none localhost/lab/shell:1 sh -c '{BURN} & {BURN}; wait'
{PAUSE}
"""


def test_sacct_counts_what_containers_use(lab: Cluster, figures: Figures) -> None:
    """And what the agents use, which are the step: tenths of a second on a node, seconds under emulation."""
    shell = lab.first.shell
    with paused(shell, SCRIPT, MOORED, "--nodelist=n1", "--cpus-per-task=2", "--mem=900M") as job:
        agents = agents_seconds(shell, job_of(facts(job.output)["task"].text))
    slurm, warden, line = by_slurm(job, "0"), by_warden(job), by_last_line(job)
    print(f"{slurm=} {warden=} {line=} {agents=:.1f}")
    assert warden.seconds > SECONDS
    assert warden.memory > MEMORY
    assert line.seconds == pytest.approx(warden.seconds, rel=0.02, abs=0.5)
    assert line.memory == pytest.approx(warden.memory, rel=0.02)
    for what, sacct, ours in (
        (f"CPU time less the agents' {agents:.1f} s", slurm.seconds - agents, warden.seconds),
        ("memory", slurm.memory, warden.memory),
    ):
        off = abs(sacct - ours) / ours * 100
        figures.add(f"{what}: sacct {sacct:.1f}, usage {ours:.1f}, apart", off, "%", at_most=WITHIN)
