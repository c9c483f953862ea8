"""Moored jobs of one user, and of two, on one node at the same time: the same names in all of them, and they never
meet."""

from __future__ import annotations

from collections.abc import Iterable

from virtual.guest.cluster import Cluster
from virtual.guest.shell import Shell
from virtual.jobs.batch import MOORED, Job, submit
from virtual.jobs.facts import SHELL, facts
from virtual.jobs.pause import PAUSE, SAYS, let_go_on

# All come to the pause before any goes on: what they did before it, they did beside each other.
SCRIPT = rf"""
{SHELL}
run() {{ podman run --network none --volume same:/same "$@"; }}
image=localhost/lab/shell:1
podman load --quiet --input /srv/lab/shell.tar
run --detach --name same $image sh -c 'echo $1 > /same/file; sleep 600' sh "$SLURM_JOB_ID"
{PAUSE}
fact containers podman ps --all --format '{{{{.Names}}}} {{{{.Status}}}}'
fact volumes podman volume ls --quiet
fact file run --rm $image cat /same/file
fact remove podman rm --force --time 0 same
"""


def test_jobs_with_the_same_names_do_not_meet(lab: Cluster) -> None:
    shell = lab.first.shell
    for others_user in ("alice", "bob"):
        jobs = [moored(shell, user) for user in ("alice", others_user)]
        try:
            for job in jobs:
                job.wait_said(SAYS)
            # One after the other: what the first removes is no concern of the second.
            for job in jobs:
                let_go_on(job)
                job.wait_gone()
        finally:
            cancel(jobs)
        for job in jobs:
            alone(job)


def moored(shell: Shell, user: str) -> Job:
    return submit(shell, SCRIPT, MOORED, "--nodelist=n1", "--mem=500M", user=user)


def cancel(jobs: Iterable[Job]) -> None:
    for job in jobs:
        job.cancel("--quiet")


def alone(job: Job) -> None:
    found = facts(job.output)
    assert found["containers"].text.startswith("same Up "), job.output
    assert len(found["containers"].lines) == 1
    assert found["volumes"].text == "same"
    assert found["file"].text == job.id
    assert found["remove"].text == "same"
    assert job.accounted("ExitCode") == ["0:0"]
