"""A job that is held up goes on afterwards, containers included, and leaves nothing when it ends."""

from __future__ import annotations

from virtual.aboard import RUN, Roles, aboard, tell, wait_until
from virtual.cluster import Cluster
from virtual.leftovers import Watch
from virtual.shell import Shell

STRAY = "USR1 was sent to this job's steps, whose agents do not heed it, and not to its script"
EPILOG = "/etc/slurm/epilog.d/50-moorage"
SECOND_LIFE = '[ "$SLURM_RESTART_COUNT" = 1 ] || wait; podman exec hand echo podman works; exit 3'
NEVER = "67000000"
OWN_END = ["FAILED", "3:0"]


def test_suspension_a_restart_of_slurmd_and_a_stray_signal(lab: Cluster, watch: Watch) -> None:
    with watch.nothing_left() as endings:
        shell = lab.first.shell
        job = aboard(shell, f"told go; {RUN} echo podman works; exit 3")
        endings[job.id] = "suspended, slurmd restarted, scancel -s USR1"
        job.wait_said("^aboard")
        suspended_and_resumed(shell, job.id, Roles(job).tree)
        shell.run(["systemctl", "restart", "slurmd"])
        job.cancel("--signal=USR1")
        job.wait_said(STRAY)
        tell(job, "go")
        job.wait_gone()
    assert job.accounted("State,ExitCode") == OWN_END
    assert "podman works" in job.output


def suspended_and_resumed(shell: Shell, job: str, tree: str) -> None:
    """In between not even a container runs."""

    def frozen(word: str) -> bool:
        return f"frozen {word}" in shell.output("cat", f"{tree}/cgroup.events").splitlines()

    shell.run(["scontrol", "suspend", job])
    wait_until(lambda: frozen("1"), "the job's tree still runs")
    shell.run(["scontrol", "resume", job])
    wait_until(lambda: frozen("0"), "the job's tree does not run again")


def test_a_requeue_and_an_epilog_too_many(lab: Cluster, watch: Watch) -> None:
    """Epilogs: while the job still runs, as Slurm does it, for a job that is gone, and for one that never was."""
    with watch.nothing_left() as endings:
        shell = lab.first.shell
        again = aboard(shell, SECOND_LIFE, "--requeue", "--open-mode=append")
        twice = aboard(shell, "said lost:; exit 3")
        endings |= {again.id: "requeue", twice.id: "several Epilogs"}
        again.wait_said("^aboard: 0")
        shell.run(["scontrol", "requeue", again.id])
        twice.wait_said("^aboard")
        epilog(shell, twice.id)
        again.wait_state("PENDING")
        # Else Slurm waits for two minutes, until the first run's credential is of no use any more.
        shell.run(["scontrol", "update", f"JobId={again.id}", "StartTime=now"])
        twice.wait_gone()
        epilog(shell, twice.id)
        epilog(shell, NEVER)
        again.wait_gone()
    for job in (again, twice):
        assert job.accounted("State,ExitCode") == OWN_END
    assert "aboard: 1" in again.output
    assert "podman works" in again.output


def epilog(shell: Shell, job: str) -> None:
    """As slurmd runs it, which gives it nothing else that it uses."""
    environ = [f"SLURM_JOB_ID={job}", "SLURM_JOB_UID=1001", "SPANK_K8S=cluster=none"]
    shell.run(["env", "--ignore-environment", *environ, EPILOG])
