"""However a job over two nodes ends, nothing of it stays on either of them.

Two jobs at a time where that is possible, because their starts are what takes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from moorage.common.errors import MoorageError
from virtual.guest.cluster import Cluster
from virtual.guest.machine import Machine
from virtual.guest.shell import Shell
from virtual.jobs import cluster_job, multi_node_job
from virtual.jobs.batch import Job, submit
from virtual.jobs.container_job import HEARS, RUN, Roles, tell, wait_until
from virtual.jobs.fabric_job import ADDRESS, MOORED, PRELUDE, fabric_job
from virtual.probes.leftovers import AT_A_POWER_CUT, EXCLUDED, Watch, nothing_left_on

pytestmark = [pytest.mark.long, pytest.mark.parametrize("lab", ["trixie"], indirect=True)]

OWN_END = ("FAILED", "3:0")
SECOND_LIFE = f'[ "$SLURM_RESTART_COUNT" = 1 ] || wait; ask {ADDRESS.format(1)}; exit 3'
# Slurm gives such a job as many nodes as there are.
ONE_OR_TWO = ("--nodes=1-2", "--ntasks=2", "--cpus-per-task=1", "--mem=700M", "--time=30")
SMALLER_LIFE = f"""
if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then
{PRELUDE}
wait
fi
{HEARS}
podman load --quiet --input /srv/lab/shell.tar
{RUN} echo "again on $SLURM_JOB_NUM_NODES"
told go
exit 3
"""
OUTLASTS = f"told go; ask {ADDRESS.format(1)}; on n2 bash -c 'ask {ADDRESS.format(0)}'; exit 3"
ASKS_ITS_NEIGHBOUR = f'[ "$(ask {ADDRESS.format(1)})" = "hand of $SLURM_JOB_ID on n2" ] || exit 1; exit 3'
# As slurmd is killed at the worst moment: the state is written before the first thing is made.
KILL_IN_PROLOG = 'until [ -e "$1" ]; do :; done; systemctl kill --kill-whom=main --signal=KILL slurmd'
# With all that Slurm may wait for, of a node that did not answer for a moment.
SLURMS_LIMIT = 900.0


def test_by_the_end_of_its_script_and_by_scancel(lab: Cluster, watches: list[Watch]) -> None:
    """Both leave a container on each node, and a process."""
    with nothing_left_on(watches) as endings:
        normal, running = fabric_job(lab.first.shell, "exit 0"), fabric_job(lab.first.shell, "wait")
        endings |= {normal.id: "normal end", running.id: "scancel"}
        running.wait_said("^containers run")
        running.cancel()
        for job in (normal, running):
            job.wait_gone()
    assert (normal.end, running.end[0]) == (("COMPLETED", "0:0"), "CANCELLED")


def test_by_the_loss_of_moorage_run_and_of_the_agent_on_the_second_node(lab: Cluster, watches: list[Watch]) -> None:
    """The job ends with the first; of the second its script is told, and goes on."""
    with nothing_left_on(watches) as endings:
        task, agent = fabric_job(lab.first.shell, "wait"), fabric_job(lab.first.shell, "said lost:; exit 3")
        endings |= {task.id: "SIGKILL of moorage run", agent.id: "SIGKILL of the second node's agent"}
        for job in (task, agent):
            job.wait_said("^containers run")
        Roles(task).kill("moorage run")
        lose_agent(lab.machines[1].shell, agent)
        for job in (task, agent):
            job.wait_gone()
    assert (task.end, agent.end) == (("FAILED", "0:9"), OWN_END)
    assert "lost: n2: its agent was ended" in agent.output


def test_by_the_loss_of_the_second_nodes_keeper_and_by_the_time_limit(lab: Cluster, watches: list[Watch]) -> None:
    with nothing_left_on(watches) as endings:
        keeper, slow = fabric_job(lab.first.shell, "said lost:; exit 3"), fabric_job(lab.first.shell, "wait")
        endings |= {keeper.id: "SIGKILL of the second node's keeper", slow.id: "time limit"}
        for job in (keeper, slow):
            job.wait_said("^containers run")
        lab.first.shell.run(["scontrol", "update", f"JobId={slow.id}", f"TimeLimit={slow.full_minutes + 1}"])
        there(lab, keeper).kill("keeper")
        for job in (keeper, slow):
            job.wait_gone()
    assert (keeper.end, slow.end[0]) == (OWN_END, "TIMEOUT")
    assert "lost: n2: the keeper of the job's tree has ended (killed by KILL)" in keeper.output


def test_by_its_own_end_after_the_loss_of_the_second_nodes_warden_and_holder(
    lab: Cluster, watches: list[Watch]
) -> None:
    """Another one takes the place of each, and containers still reach each other."""
    with nothing_left_on(watches) as endings:
        job = fabric_job(lab.first.shell, OUTLASTS)
        endings[job.id] = "normal end after SIGKILL of the second node's warden and holder"
        job.wait_said("^containers run")
        for role in ("warden", "holder"):
            replaced(lab, job, role)
        tell(job, "go")
        job.wait_gone()
    assert job.end == OWN_END
    assert f"hand of {job.id} on n2" in job.output
    assert f"hand of {job.id} on n1" in job.output


def there(lab: Cluster, job: Job) -> Roles:
    """The job's processes on the second node."""
    return Roles(Job(lab.machines[1].shell, job.id, job.user))


def replaced(lab: Cluster, job: Job, role: str) -> None:
    """Kill it on the second node, and wait for the next one."""
    before = there(lab, job)
    before.kill(role)
    wait_until(lambda: is_another(lab, job, role, before.pid(role)), f"there is no other {role}")


def is_another(lab: Cluster, job: Job, role: str, than: int) -> bool:
    with suppress(MoorageError):
        return there(lab, job).pid(role) != than
    return False


def lose_agent(shell: Shell, job: Job) -> None:
    """On the node of this shell; until the job's tree there has gone with it."""
    roles = Roles(Job(shell, job.id, job.user))
    roles.kill("agent")
    tree_is_there = ["test", "-e", roles.tree]
    wait_until(lambda: shell.run(tree_is_there, ok=(0, 1)).code == 1, f"the tree of job {job.id} is still there")


def requeued(lab: Cluster, job: Job) -> None:
    lab.first.shell.run(["scontrol", "requeue", job.id])
    job.wait_state("PENDING")


def given_up(lab: Cluster, job: Job) -> None:
    with lost(lab, job):
        outlives(lab.machines[1].shell, job)


@contextmanager
def lost(lab: Cluster, job: Job) -> Iterator[None]:
    """Slurm takes the second node for lost, whose slurmd hears nothing, and has the job wait for another life."""
    node = ["scontrol", "update", "nodename=n2"]
    slurmd = ["systemctl", "kill", "--kill-whom=main", "slurmd"]
    lab.machines[1].shell.run([*slurmd, "--signal=STOP"])
    try:
        lab.first.shell.run([*node, "state=down", "reason=test"])
        job.wait_state("PENDING")
        yield
    finally:
        second = lab.machines[1].shell
        second.run([*slurmd, "--signal=CONT"])
        # slurmd is to end the job by its number: it would end the next life as well.
        known = ["test", "-e", f"/var/lib/moorage/jobs/{job.id}.json"]
        wait_until(lambda: second.run(known, ok=(0, 1)).code == 1, "the first life is there", SLURMS_LIMIT)
        # It may have come back by itself.
        lab.first.shell.run([*node, "state=resume"], ok=(0, 1))


def outlives(shell: Shell, job: Job) -> None:
    """What the job has had on the node is there after its life."""
    assert active(shell, f"moorage-warden@{job.id}")
    shell.run(["ip", "link", "show", f"moor{job.id}v"])


@pytest.mark.parametrize("by", [requeued, given_up])
def test_a_second_life_under_the_same_number(
    lab: Cluster, watches: list[Watch], by: Callable[[Cluster, Job], None]
) -> None:
    """Whose containers have the same names and addresses as in its first."""
    with nothing_left_on(watches) as endings:
        job = fabric_job(lab.first.shell, SECOND_LIFE, "--requeue", "--open-mode=append")
        endings[job.id] = f"a second life, after it was {by.__name__}"
        job.wait_said("^containers run: 0")
        by(lab, job)
        begin_again(lab, job)
        job.wait_said("^containers run: 1", SLURMS_LIMIT)
        job.wait_gone()
    assert job.end == OWN_END
    assert f"hand of {job.id} on n2" in job.output


def test_a_second_life_beside_what_is_left_of_the_first(lab: Cluster, watches: list[Watch]) -> None:
    """On the first node alone, while Slurm takes the other for lost; once that is back, Slurm has it cleared."""
    second = lab.machines[1].shell
    with nothing_left_on(watches) as endings:
        job = submit(lab.first.shell, SMALLER_LIFE, MOORED, *ONE_OR_TWO, "--requeue", "--open-mode=append")
        endings[job.id] = "a second life without the lost node"
        job.wait_said("^containers run: 0")
        with lost(lab, job):
            begin_again(lab, job)
            job.wait_said("^again on 1", SLURMS_LIMIT)
            outlives(second, job)
        tell(job, "go")
        job.wait_gone()
    assert job.end == OWN_END


def begin_again(lab: Cluster, job: Job) -> None:
    """Else Slurm waits for two minutes, until the first run's credential is of no use any more."""
    lab.first.shell.run(["scontrol", "update", f"JobId={job.id}", "StartTime=now"])


def test_each_job_of_an_array_has_a_fabric_of_its_own(lab: Cluster, watches: list[Watch]) -> None:
    """With the same addresses; each container knows whose it is."""
    with nothing_left_on(watches) as endings:
        array = fabric_job(lab.first.shell, ASKS_ITS_NEIGHBOUR, "--array=1-2")
        endings[array.id] = "normal end of an array"
        array.wait_gone(SLURMS_LIMIT)
    assert [Job(array.shell, f"{array.id}_{task}", array.user).end for task in (1, 2)] == [OWN_END, OWN_END]


def test_by_scancel_while_a_node_joins_a_cluster(lab: Cluster, watches: list[Watch]) -> None:
    with nothing_left_on(watches) as endings:
        job = submit(lab.first.shell, "echo never", cluster_job.MOORED, "--nodes=2", *multi_node_job.SHAPE)
        endings[job.id] = "scancel while a node joins its cluster"
        job.wait_said(f"n2: {multi_node_job.JOINS}", cluster_job.START_LIMIT)
        job.cancel()
        job.wait_gone()
    assert job.end[0] == "CANCELLED"
    assert "never" not in job.output


def test_by_scancel_after_a_slurmd_was_killed_in_mid_start(lab: Cluster) -> None:
    second = lab.machines[1]
    with resumed(lab, second), nothing_left_on(cut_short(lab)) as endings:
        job = fabric_job(lab.first.shell, "wait", "--no-requeue")
        endings[job.id] = "SIGKILL of the second node's slurmd in its Prolog"
        state = f"/var/lib/moorage/jobs/{job.id}.json"
        second.shell.run(["timeout", "120", "sh", "-c", KILL_IN_PROLOG, "sh", state])
        wait_until(lambda: not active(second.shell, "slurmd"), "slurmd is still there")
        second.shell.run(["systemctl", "start", "slurmd"])
        job.cancel()
        job.wait_gone(SLURMS_LIMIT)
    assert job.end[0] == "CANCELLED"


def test_by_a_power_cut_of_the_second_node(lab: Cluster) -> None:
    """Slurm takes a node that is back so soon for one that was never away: the script is told, and ends the job."""
    with nothing_left_on(cut_short(lab)) as endings:
        job = fabric_job(lab.first.shell, "said lost:; exit 3", "--no-requeue")
        endings[job.id] = "power cut of the second node"
        job.wait_said("^containers run")
        lab.reset(lab.machines[1].name)
        job.wait_gone(SLURMS_LIMIT)
    assert job.end == OWN_END


def cut_short(lab: Cluster) -> list[Watch]:
    return [Watch(lab, machine, excluded=(*EXCLUDED, AT_A_POWER_CUT)) for machine in lab.machines]


def active(shell: Shell, unit: str) -> bool:
    return shell.run(["systemctl", "is-active", "--quiet", unit], ok=range(256)).code == 0


@contextmanager
def resumed(lab: Cluster, machine: Machine) -> Iterator[None]:
    """Whatever Slurm thinks of the node after the block, later tests have it."""
    try:
        yield
    finally:
        machine.shell.run(["systemctl", "start", "slurmd"])
        lab.first.shell.run(["scontrol", "update", f"nodename=n{machine.number}", "state=resume"], ok=(0, 1))
