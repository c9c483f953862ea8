"""What a job may wish of its nodes: how many take part, and whether all of them have to."""

from __future__ import annotations

import re

import pytest

from moorage.common.errors import MoorageError
from moorage.common.phases import INVITATION
from virtual.guest.broken_node import during
from virtual.guest.cluster import Cluster
from virtual.guest.shell import Shell
from virtual.jobs import cluster_job, multi_node_job
from virtual.jobs.batch import Job, run, submit
from virtual.jobs.container_job import IMAGE, Roles
from virtual.jobs.fabric_job import MOORED, SHAPE
from virtual.jobs.facts import SHELL, facts
from virtual.jobs.pause import PAUSE, paused
from virtual.probes.fabric import fabric
from virtual.probes.leftovers import Watch, nothing_left_on

pytestmark = [pytest.mark.long, pytest.mark.parametrize("lab", ["trixie"], indirect=True)]

NODES = ("--nodes=2", "--nodelist=n1,n2")
ALONE = f"""
{SHELL}
podman load --quiet --input /srv/lab/shell.tar
fact ran podman run --rm {IMAGE} echo here
{PAUSE}
"""
# Slurm looks for a place for such jobs only now and then.
SCHEDULED = 600.0
CAUSE = "Podman is not installed: install podman 4.9 or newer"
# Submitted on the node that is broken meanwhile, by root in the name of alice; each is waited for.
SUBMISSIONS = """
for wish in all any; do
    runuser -u alice -- sbatch --parsable --wait --k8s=cluster=none,require=$wish --chdir=/home/alice \
        --output=/home/alice/job-%j.out --wrap='echo ran' "$@"
done
true
"""

SEES = f"""
{SHELL}
fact nodes kubectl get nodes --no-headers
"""


def test_the_first_of_its_nodes_are_enough(lab: Cluster, watches: list[Watch]) -> None:
    """On the other one there is nothing of Moorage, and between the two no fabric."""
    shell, second = lab.first.shell, lab.machines[1].shell
    with (
        nothing_left_on(watches) as endings,
        paused(shell, ALONE, f"{MOORED},nodes=1", *NODES, *SHAPE) as job,
    ):
        endings[job.id] = "one node of two"
        assert facts(job.output)["ran"].text == "here"
        for place in (f"/run/moorage/{job.id}", f"/var/lib/moorage/jobs/{job.id}.json"):
            assert second.run(["test", "-e", place], ok=(0, 1)).code == 1, place
        for shell_of_node in (shell, second):
            with pytest.raises(MoorageError, match="there is no VXLAN"):
                fabric(shell_of_node, job.id)
    assert job.end == ("COMPLETED", "0:0")


def test_more_nodes_than_the_job_has_are_refused_in_one_line(lab: Cluster, watches: list[Watch]) -> None:
    with nothing_left_on(watches) as endings:
        job = run(lab.first.shell, "echo ran", f"{MOORED},nodes=3", *NODES, *SHAPE)
        endings[job.id] = "three nodes of two"
    assert re.fullmatch(r"moorage: [^\n]*\b3\b[^\n]*: [^\n]+\n?", job.output), job.output
    assert job.end == ("FAILED", "1:0")


def test_a_job_of_several_parts_is_refused_in_one_line(lab: Cluster, watches: list[Watch]) -> None:
    with nothing_left_on(watches) as endings:
        job = submit(lab.first.shell, "echo ran", MOORED, *SHAPE, ":", *SHAPE)
        endings[job.id] = "heterogeneous"
        job.wait_gone(SCHEDULED)
    assert re.fullmatch(r"moorage: [^\n]*heterogeneous[^\n]*: [^\n]+\n?", job.output), job.output


def test_a_node_that_refuses_ends_the_job_unless_any_will_do(lab: Cluster, watches: list[Watch]) -> None:
    shell, second = lab.first.shell, lab.machines[1].shell
    with nothing_left_on(watches) as endings:
        said = during(second, "no podman", ["bash", "-c", SUBMISSIONS, "bash", *NODES, *SHAPE]).stdout
        needs_all, needs_any = (Job(shell, line.partition(";")[0], "alice") for line in said.split())
        endings |= {needs_all.id: "a node refuses", needs_any.id: "a node refuses, and any will do"}
        for job in (needs_all, needs_any):
            job.wait_gone()
    for job in (needs_all, needs_any):
        assert re.search(rf"^moorage: .*\bn2\b.*{re.escape(CAUSE)}", job.output, re.MULTILINE), job.output
    assert (needs_all.end, "ran" in needs_all.output.splitlines()) == (("FAILED", "1:0"), False)
    assert (needs_any.end, "ran" in needs_any.output.splitlines()) == (("COMPLETED", "0:0"), True)


@pytest.mark.parametrize("require", ["all", "any"])
def test_a_node_that_does_not_join_ends_the_job_unless_any_will_do(
    lab: Cluster, watches: list[Watch], require: str
) -> None:
    """Its container ends before it is invited, and the file that is kept for the user has what was known of it."""
    shell, second = lab.first.shell, lab.machines[1].shell
    with nothing_left_on(watches) as endings:
        job = submit(shell, SEES, f"--k8s=require={require}", *NODES, *multi_node_job.SHAPE)
        endings[job.id] = f"a node that does not join, of which {require} are required"
        try:
            job.wait_said(f"n2: {INVITATION.text}", cluster_job.START_LIMIT)
            end_container(second, job)
            job.wait_gone(cluster_job.START_LIMIT)
        finally:
            job.cancel("--quiet")
    found = re.search(
        r"^moorage: .*\bn2: the node container \S+ has ended.* \(more in (\S+)\)", job.output, re.MULTILINE
    )
    assert found, job.output
    kept = shell.output("cat", found[1], user=job.user)
    assert "\n==== node container on n2\n" in kept
    nodes = [line.split()[:2] for line in facts(job.output)["nodes"].lines] if require == "any" else []
    assert nodes == ([[lab.first.name, "Ready"]] if require == "any" else [])
    assert job.end == (("COMPLETED", "0:0") if require == "any" else ("FAILED", "1:0"))


def end_container(shell: Shell, job: Job) -> None:
    """The job's only one on this node."""
    roles = Roles(Job(shell, job.id, job.user))
    conmon = roles.pid("conmon")
    shell.run(["kill", "-KILL", *(str(one.pid) for one in roles.seen.values() if one.parent == conmon)])
