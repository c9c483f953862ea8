"""However a job ends, nothing of it stays on the node: endings by its script, its owner, Slurm and the kernel.

Two jobs at a time, because their starts are what takes the time.
"""

from __future__ import annotations

from virtual.guest.cluster import Cluster
from virtual.jobs.batch import Job, submit
from virtual.jobs.container_job import RUN, container_job
from virtual.probes.leftovers import Watch

# A busybox that keeps all it reads.
EATER = f"{RUN} sh -c 'tail /dev/zero'"
STRAY = "USR1 was sent to this job's steps, whose agents do not heed it, and not to its script"
WORKS_ON = "while podman exec hand echo at work; do sleep 1; done"
TRAP = "trap 'echo script got USR1' USR1; echo trapped; while sleep 0.3; do :; done"


def ends(job: Job) -> tuple[str, str]:
    state, code = job.accounted("State,ExitCode")
    return state.split()[0], code


def test_by_the_end_of_its_script_and_by_its_failure_after_a_container_ran_out_of_memory(
    lab: Cluster, watch: Watch
) -> None:
    """Both leave a container and a process running. The greedy container is killed, and nothing else is said to be."""
    with watch.nothing_left() as endings:
        normal = container_job(lab.first.shell, "exit 0")
        failing = container_job(lab.first.shell, f"{EATER}; echo eater: $?; podman exec hand echo still there; exit 7")
        endings |= {normal.id: "normal end", failing.id: "failing script, out of memory in the tree"}
        for job in (normal, failing):
            job.wait_gone()
    assert (ends(normal), ends(failing)) == (("COMPLETED", "0:0"), ("FAILED", "7:0"))
    assert "eater: 137" in failing.output
    assert "still there" in failing.output


def test_by_scancel_while_it_runs_and_in_its_start(lab: Cluster, watch: Watch) -> None:
    with watch.nothing_left() as endings:
        running = container_job(lab.first.shell, "wait")
        running.wait_said("^containers run")
        starting = container_job(lab.first.shell, "wait")
        endings |= {running.id: "scancel", starting.id: "scancel in its start"}
        starting.wait_said("starting the agents")
        starting.cancel()
        running.cancel()
        running.wait_gone()
        starting.wait_gone()
    assert (ends(running)[0], ends(starting)[0]) == ("CANCELLED", "CANCELLED")
    assert "containers run" not in starting.output


def test_by_its_time_limit_with_the_signals_before_it(lab: Cluster, watch: Watch) -> None:
    """USR1 reaches the script if that was asked for; else the user is told where it went."""
    with watch.nothing_left() as endings:
        batch = container_job(lab.first.shell, TRAP, "--signal=B:USR1@60")
        steps = container_job(lab.first.shell, TRAP, "--signal=USR1@60")
        endings |= {batch.id: "time limit, --signal=B:USR1@60", steps.id: "time limit, --signal=USR1@60"}
        for job in (batch, steps):
            job.wait_said("^trapped")
        limit = max(job.full_minutes for job in (batch, steps)) + 1
        lab.first.shell.run(["scontrol", "update", f"JobId={batch.id},{steps.id}", f"TimeLimit={limit}"])
        for job in (batch, steps):
            job.wait_gone()
    assert (ends(batch)[0], ends(steps)[0]) == ("TIMEOUT", "TIMEOUT")
    assert ("script got USR1" in batch.output, STRAY in batch.output) == (True, False)
    assert ("script got USR1" in steps.output, STRAY in steps.output) == (False, True)


def test_by_being_preempted_with_time_to_end(lab: Cluster, watch: Watch) -> None:
    """It is told, and has its containers for as long as Slurm grants."""
    with watch.nothing_left() as endings:
        shell = lab.first.shell
        yielding = container_job(shell, WORKS_ON, "--partition=spare")
        yielding.wait_said("^containers run")
        urgent = submit(shell, "true", "--partition=main", "--nodelist=n1", "--exclusive", "--time=5")
        endings |= {yielding.id: "preemption", urgent.id: "the one that preempts"}
        yielding.wait_gone()
        urgent.wait_gone()
    assert (ends(yielding)[0], ends(urgent)[0]) == ("PREEMPTED", "COMPLETED")
    _, told, afterwards = yielding.output.partition("TERM was sent to this job's steps")
    assert told
    assert afterwards.count("at work") > 2
