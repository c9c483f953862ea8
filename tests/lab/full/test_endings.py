"""However a job with a cluster ends, nothing of it stays on the node: while it runs, and in the middle of its start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.figures import Figures
from virtual.aboard import Roles, wait_until
from virtual.cache import CACHE
from virtual.census import census, owner
from virtual.cluster import Cluster
from virtual.leftovers import Watch
from virtual.moored import START_LIMIT, moored, ready
from virtual.under_way import RUNS, WAITS, under_way, watched

DIRECTORY = CACHE / "test-endings"
PORT = 22600
# It goes on without its cluster, with an exit code of its own.
GOES_ON = f'{RUNS} until grep -q "lost:" ~/job-$SLURM_JOB_ID.out; do sleep 1; done; exit 3'
OWN_END = ("FAILED", "3:0")


@pytest.fixture(scope="module", params=["trixie", "unstable"])
def watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    with watched(DIRECTORY, request.param, PORT) as found:
        yield found


def test_by_scancel_in_the_middle_of_kubeadm(watch: Watch) -> None:
    with watch.nothing_left() as endings:
        job = moored(watch.machine.shell, "echo never")
        endings[job.id] = "scancel while kubeadm waits for the control plane"
        job.wait_said("starting the control plane", START_LIMIT)
        wait_until(lambda: runs(watch.lab, "etcd"), "there is no etcd", START_LIMIT)
        job.cancel()
        job.wait_gone()
    assert job.end[0] == "CANCELLED"
    assert "never" not in job.output


def test_by_scancel_while_it_runs(watch: Watch, figures: Figures) -> None:
    with watch.nothing_left() as endings:
        job = under_way(watch, WAITS)
        endings[job.id] = "scancel"
        job.cancel()
        job.wait_gone()
    assert job.end[0] == "CANCELLED"
    suite = watch.lab.request.suite
    figures.add(f"start-up of a job with a cluster, as its output has it ({suite})", ready(job.output), "s")


def test_by_its_time_limit(watch: Watch) -> None:
    with watch.nothing_left() as endings:
        job = under_way(watch, WAITS)
        endings[job.id] = "time limit"
        hours, minutes, _ = map(int, job.show("RunTime").split(":"))
        limit = f"TimeLimit={hours * 60 + minutes + 1}"
        watch.machine.shell.run(["scontrol", "update", f"JobId={job.id}", limit])
        job.wait_gone()
    assert job.end[0] == "TIMEOUT"


@pytest.mark.parametrize("role", ["agent", "keeper", "srun", "moorage run"])
@pytest.mark.parametrize("watch", ["trixie"], indirect=True)
def test_by_the_loss_of_one_of_ours(watch: Watch, role: str) -> None:
    """The script ends with `moorage run` alone."""
    with watch.nothing_left() as endings:
        job = under_way(watch, WAITS if role == "moorage run" else GOES_ON)
        endings[job.id] = f"SIGKILL of {role}"
        Roles(job).kill(role)
        job.wait_gone()
    assert job.end == (("FAILED", "0:9") if role == "moorage run" else OWN_END)


def runs(lab: Cluster, name: str) -> bool:
    shell = lab.first.shell
    return any(seen.name == name for seen in census(shell, owner(shell, "alice")))
