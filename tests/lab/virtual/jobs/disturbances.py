"""Disturbances from outside that a job survives, and Epilogs that come too early or too often."""

from __future__ import annotations

from ..guest.shell import Shell
from .batch import MOORED, Job
from .container_job import Roles, wait_until

EPILOG = "/etc/slurm/epilog.d/50-moorage"


def warden_restarted(job: Job) -> None:
    """Kill the job's warden, and wait for the next one to have noted that it is there."""
    before = Roles(job)
    before.kill("warden")
    wait_until(lambda: Roles(job).pid("warden") != before.pid("warden"), "the warden has not been started again")


def suspended_and_resumed(job: Job) -> None:
    """In between not even a container runs."""
    shell, tree = job.shell, Roles(job).tree

    def frozen(word: str) -> bool:
        return f"frozen {word}" in shell.output("cat", f"{tree}/cgroup.events").splitlines()

    shell.run(["scontrol", "suspend", job.id])
    wait_until(lambda: frozen("1"), "the job's tree still runs")
    shell.run(["scontrol", "resume", job.id])
    wait_until(lambda: frozen("0"), "the job's tree does not run again")


def slurmd_restarted(job: Job) -> None:
    job.shell.run(["systemctl", "restart", "slurmd"])


def requeued(job: Job) -> None:
    """Back in the queue, and at once out of it."""
    job.shell.run(["scontrol", "requeue", job.id])
    job.wait_state("PENDING")
    # Else Slurm waits for two minutes, until the first run's credential is of no use any more.
    job.shell.run(["scontrol", "update", f"JobId={job.id}", "StartTime=now"])


def epilog(shell: Shell, job: str, option: str = MOORED) -> None:
    """As slurmd runs it, which gives it nothing else that it uses."""
    environ = [f"SLURM_JOB_ID={job}", "SLURM_JOB_UID=1001", f"SPANK_K8S={option.partition('=')[2]}"]
    shell.run(["env", "--ignore-environment", *environ, EPILOG])
