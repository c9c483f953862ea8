"""However a job with a cluster ends, nothing of it stays on the node: while it runs, and in the middle of its start.

One start is kept as a snapshot of the guest, and each ending goes back to it: a start takes minutes, that seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from support.figures import Figures
from virtual.build.cache import CACHE
from virtual.guest.cluster import Cluster
from virtual.jobs.batch import Job
from virtual.jobs.cluster_job import START_LIMIT, cluster_job, ready
from virtual.jobs.container_job import Roles, tell, wait_until
from virtual.jobs.disturbances import requeued
from virtual.jobs.started_job import RUNS, SAYS, started_job, watched
from virtual.probes.leftovers import AT_A_POWER_CUT, EXCLUDED, OF_A_SNAPSHOT, Watch, make_ready, record
from virtual.probes.processes import owner, user_processes

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-endings"
PORT = 22600
# It goes on without its cluster, which it takes down itself when it is told to, with an exit code of its own.
GOES_ON = f"""
{RUNS}
until grep -q "lost:" ~/job-$SLURM_JOB_ID.out; do
    if [ -e ~/told-$SLURM_JOB_ID-down ]; then
        kubectl get nodes
        /opt/moorage/bin/moorage down
        break
    fi
    sleep 1
done
exit 3
"""
OWN_END = ("FAILED", "3:0")
# Its controller, which is cut off with the node, writes down what it was told a moment later.
KEPT_BY_SLURM = "touch /run/told; until [ /var/lib/slurm/slurmctld/job_state -nt /run/told ]; do sleep 0.2; done"
MIDDLE = "starting the control plane"
only_trixie = pytest.mark.parametrize("watch", ["trixie"], indirect=True)


@pytest.fixture(scope="module", params=["trixie", "unstable"])
def watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    with watched(DIRECTORY, request.param, PORT, only_qemu="snapshots of jobs that run") as found:
        yield found


@dataclass(frozen=True)
class Afloat:
    """A job whose cluster runs, on a node of which is known what it had before."""

    job: Job
    watch: Watch


@pytest.fixture(scope="module")
def kept(watch: Watch, figures: Figures) -> Afloat:
    before = record(watch.machine)
    job = started_job(watch, GOES_ON, "--requeue", "--open-mode=append")
    suite = watch.lab.request.suite
    figures.add(f"start-up of a job with a cluster, as its output has it ({suite})", ready(job.output), "s")
    watch.lab.snapshot()
    return Afloat(job, replace(watch, before=before, excluded=(*EXCLUDED, OF_A_SNAPSHOT)))


@pytest.fixture
def afloat(kept: Afloat) -> Afloat:
    kept.watch.lab.restore_with_jobs()
    assert kept.job.show("JobState") == "RUNNING"
    return replace(kept, watch=replace(kept.watch))


def test_by_scancel_in_the_middle_of_kubeadm(watch: Watch) -> None:
    with watch.nothing_left() as endings:
        job = cluster_job(watch.machine.shell, "echo never")
        endings[job.id] = "scancel while kubeadm waits for the control plane"
        job.wait_said(MIDDLE, START_LIMIT)
        wait_until(lambda: runs(watch.lab, "etcd"), "there is no etcd", START_LIMIT)
        job.cancel()
        job.wait_gone()
    assert job.end[0] == "CANCELLED"
    assert "never" not in job.output


def test_by_scancel_while_it_runs(afloat: Afloat) -> None:
    job = afloat.job
    with afloat.watch.nothing_left() as endings:
        endings[job.id] = "scancel"
        job.cancel()
        job.wait_gone()
    assert job.end[0] == "CANCELLED"


def test_by_its_time_limit(afloat: Afloat) -> None:
    job = afloat.job
    with afloat.watch.nothing_left() as endings:
        endings[job.id] = "time limit"
        hours, minutes, _ = map(int, job.show("RunTime").split(":"))
        limit = f"TimeLimit={hours * 60 + minutes + 1}"
        job.shell.run(["scontrol", "update", f"JobId={job.id}", limit])
        job.wait_gone()
    assert job.end[0] == "TIMEOUT"


@pytest.mark.parametrize("role", ["agent", "keeper", "srun", "moorage run"])
@only_trixie
def test_by_the_loss_of_one_of_ours(afloat: Afloat, role: str) -> None:
    """The script ends with `moorage run` alone."""
    job = afloat.job
    with afloat.watch.nothing_left() as endings:
        endings[job.id] = f"SIGKILL of {role}"
        Roles(job).kill(role)
        job.wait_gone()
    assert job.end == (("FAILED", "0:9") if role == "moorage run" else OWN_END)


@pytest.mark.parametrize("killed", ["nobody", "placeholder"])
@only_trixie
def test_by_moorage_down(afloat: Afloat, killed: str) -> None:
    """Nobody misses the placeholder: the cluster answers once more before it is taken down."""
    job = afloat.job
    with afloat.watch.nothing_left() as endings:
        endings[job.id] = f"moorage down, after SIGKILL of {killed}"
        if killed != "nobody":
            Roles(job).kill(killed)
        tell(job, "down")
        job.wait_gone()
    assert job.output.count(" Ready ") == 2
    assert "taken down early, as asked for" in job.output
    assert job.end == OWN_END


@only_trixie
def test_by_a_requeue_and_in_the_middle_of_its_second_start(afloat: Afloat) -> None:
    job = afloat.job
    with afloat.watch.nothing_left() as endings:
        endings[job.id] = "requeue, then scancel in the middle of the second start"
        requeued(job)
        wait_until(lambda: job.output.count(MIDDLE) > 1, "there is no second start", START_LIMIT)
        job.cancel()
        job.wait_gone()
    assert job.end[0] == "CANCELLED"
    assert job.output.count(SAYS) == 1


@only_trixie
def test_by_a_power_cut(afloat: Afloat) -> None:
    """The node clears up at boot, and the next job has a cluster of its own, whose failing script is its end."""
    lost, cut = afloat.job, replace(afloat.watch, excluded=(*afloat.watch.excluded, AT_A_POWER_CUT))
    with cut.nothing_left() as endings:
        endings[lost.id] = "power cut while its cluster ran"
        lost.shell.run(["scontrol", "update", f"JobId={lost.id}", "Requeue=0"])
        lost.shell.run(["sh", "-c", KEPT_BY_SLURM])
        cut.lab.reset(cut.machine.name)
        make_ready(cut.machine)
        job = cluster_job(lost.shell, f"{RUNS} exit 7")
        endings[job.id] = "the next one, whose script fails"
        job.wait_gone(START_LIMIT)
    assert lost.accounted("State") == ["NODE_FAIL"]
    assert " Ready " in job.output
    assert job.end == ("FAILED", "7:0")


def runs(lab: Cluster, name: str) -> bool:
    shell = lab.first.shell
    return any(seen.name == name for seen in user_processes(shell, owner(shell, "alice")))
