"""Whatever of a job is killed, nothing of it stays on the node, and its script goes on wherever it can."""

from __future__ import annotations

from contextlib import suppress

import pytest

from moorage.common.errors import MoorageError
from virtual.guest.cluster import Cluster
from virtual.jobs.batch import Job
from virtual.jobs.container_job import RUN, Roles, container_job, tell, wait_until
from virtual.jobs.disturbances import warden_restarted
from virtual.probes.leftovers import Watch

pytestmark = pytest.mark.long

WORKS = f"{RUN} echo podman works; exit 3"
LOST = "said lost:; exit 3"
OWN_END = ["FAILED", "3:0"]


def kill(job: Job, role: str) -> None:
    """Once it is there: what the script does after it has said that its containers run takes its time to start."""
    job.wait_said("^containers run")
    wait_until(lambda: found(job, role), f"job {job.id} has no {role}")
    Roles(job).kill(role)


def found(job: Job, role: str) -> bool:
    with suppress(MoorageError):
        return Roles(job).pid(role) > 0
    return False


def test_moorage_run_and_srun(lab: Cluster, watch: Watch) -> None:
    """The job ends with the first, and its script goes on without the second."""
    with watch.nothing_left() as endings:
        task, step = container_job(lab.first.shell, "wait"), container_job(lab.first.shell, LOST)
        endings |= {task.id: "SIGKILL of moorage run", step.id: "SIGKILL of srun"}
        kill(task, "moorage run")
        kill(step, "srun")
        task.wait_gone()
        step.wait_gone()
    assert task.accounted("State,ExitCode") == ["FAILED", "0:9"]
    assert step.accounted("State,ExitCode") == OWN_END


def test_agent_and_keeper(lab: Cluster, watch: Watch) -> None:
    """The script is told, and goes on without containers."""
    with watch.nothing_left() as endings:
        agent, keeper = container_job(lab.first.shell, LOST), container_job(lab.first.shell, LOST)
        endings |= {agent.id: "SIGKILL of the agent", keeper.id: "SIGKILL of the keeper"}
        kill(agent, "agent")
        kill(keeper, "keeper")
        agent.wait_gone()
        keeper.wait_gone()
    assert agent.accounted("State,ExitCode") == OWN_END
    assert keeper.accounted("State,ExitCode") == OWN_END
    assert "the keeper of the job's tree has ended (killed by KILL)" in keeper.output


def test_placeholder_podman_conmon_and_warden(lab: Cluster, watch: Watch) -> None:
    """Containers can be run after each of them."""
    with watch.nothing_left() as endings:
        lent = container_job(lab.first.shell, f"told go; {WORKS}")
        inside = container_job(lab.first.shell, f"podman wait hand; echo waiter: $?; told go; {WORKS}")
        endings |= {lent.id: "SIGKILL of the placeholder", inside.id: "SIGKILL of podman, conmon and the warden"}
        kill(lent, "placeholder")
        tell(lent, "go")
        kill(inside, "podman")
        inside.wait_said("^waiter: 137")
        kill(inside, "conmon")
        warden_restarted(inside)
        tell(inside, "go")
        lent.wait_gone()
        inside.wait_gone()
    for job in (lent, inside):
        assert job.accounted("State,ExitCode") == OWN_END
        assert "podman works" in job.output
