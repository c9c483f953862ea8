"""A job that is held up goes on afterwards, containers included, and leaves nothing when it ends."""

from __future__ import annotations

import pytest

from virtual.guest.cluster import Cluster
from virtual.jobs.container_job import RUN, container_job, tell
from virtual.jobs.disturbances import epilog, requeued, slurmd_restarted, suspended_and_resumed
from virtual.probes.leftovers import Watch

pytestmark = pytest.mark.long

STRAY = "USR1 was sent to this job's steps, whose agents do not heed it, and not to its script"
SECOND_LIFE = '[ "$SLURM_RESTART_COUNT" = 1 ] || wait; podman exec hand echo podman works; exit 3'
NEVER = "67000000"
OWN_END = ["FAILED", "3:0"]


def test_suspension_a_restart_of_slurmd_and_a_stray_signal(lab: Cluster, watch: Watch) -> None:
    with watch.nothing_left() as endings:
        shell = lab.first.shell
        job = container_job(shell, f"told go; {RUN} echo podman works; exit 3")
        endings[job.id] = "suspended, slurmd restarted, scancel -s USR1"
        job.wait_said("^containers run")
        suspended_and_resumed(job)
        slurmd_restarted(job)
        job.cancel("--signal=USR1")
        job.wait_said(STRAY)
        tell(job, "go")
        job.wait_gone()
    assert job.accounted("State,ExitCode") == OWN_END
    assert "podman works" in job.output


def test_a_requeue_and_an_epilog_too_many(lab: Cluster, watch: Watch) -> None:
    """Epilogs: while the job still runs, as Slurm does it, for a job that is gone, and for one that never was."""
    with watch.nothing_left() as endings:
        shell = lab.first.shell
        again = container_job(shell, SECOND_LIFE, "--requeue", "--open-mode=append")
        twice = container_job(shell, "said lost:; exit 3")
        endings |= {again.id: "requeue", twice.id: "several Epilogs"}
        again.wait_said("^containers run: 0")
        requeued(again)
        twice.wait_said("^containers run")
        epilog(shell, twice.id)
        twice.wait_gone()
        epilog(shell, twice.id)
        epilog(shell, NEVER)
        again.wait_gone()
    for job in (again, twice):
        assert job.accounted("State,ExitCode") == OWN_END
    assert "containers run: 1" in again.output
    assert "podman works" in again.output
