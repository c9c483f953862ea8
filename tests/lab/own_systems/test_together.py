"""Two clusters on one node at once, of two users and of one: each works, and neither sees the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from virtual.build.cache import CACHE
from virtual.guest import builds, configuration
from virtual.guest.record import Request
from virtual.guest.shell import Shell
from virtual.jobs.batch import Job
from virtual.jobs.cluster_job import START_LIMIT, cluster_job
from virtual.jobs.facts import SHELL, facts
from virtual.jobs.pause import PAUSE, SAYS, let_go_on
from virtual.probes.access import places, successes
from virtual.probes.api_access import Call, answers

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-together"
PORT = 22700
SUITE = "trixie"
# A guest has two cores and 6 GB: half of that for each is less than a site would grant, and enough to be shown.
SMALLER = {"least_cpus": 1, "least_memory": "2G", "reserve": "256M"}
HALF = ("--cpus-per-task=1", "--mem=2500M")
SCRIPT = f"""
{SHELL}
fact server echo "$K8S_CLUSTER_API"
fact kubeconfig echo "$KUBECONFIG"
fact note kubectl create configmap mine --from-literal="job=$SLURM_JOB_ID"
{PAUSE}
fact nodes kubectl get nodes --output name
fact containers podman ps --all --format '{{{{.Names}}}}'
fact notes kubectl get configmap mine --output 'jsonpath={{.data.job}}'
"""


def test_two_users_and_one_with_two() -> None:
    """One of alice's beside one of bob's, and then beside another one of her own."""
    builds.build(SUITE)
    with builds.own(DIRECTORY, Request(1, SUITE, PORT)) as lab:
        shell = lab.first.shell
        configuration.change(shell, "kubernetes", SMALLER)
        with there(shell, "alice") as first, there(shell, "bob") as bobs:
            wait(first, bobs)
            apart(first, bobs)
            closed(first, bobs)
            closed(bobs, first)
            finish(bobs)
            with there(shell, "alice") as second:
                wait(second)
                apart(first, second)
                finish(second)
                finish(first)


@contextmanager
def there(shell: Shell, user: str) -> Iterator[Job]:
    job = cluster_job(shell, SCRIPT, *HALF, user=user)
    try:
        yield job
    finally:
        job.cancel("--quiet")


def wait(*jobs: Job) -> None:
    for job in jobs:
        job.wait_said(SAYS, START_LIMIT)


def apart(*pair: Job) -> None:
    """Who has the one has nothing of the other, whose server does answer."""
    told = [facts(job.output) for job in pair]
    servers = [one["server"].text for one in told]
    assert servers[0] != servers[1]
    for job, own, others in ((pair[0], told[0], servers[1]), (pair[1], told[1], servers[0])):
        calls = [
            Call(f"{server}/api/v1/namespaces", kubeconfig=own["kubeconfig"].text)
            for server in (own["server"].text, others)
        ]
        assert answers(job.shell, calls, job.user) == [200, 401]


def closed(job: Job, other: Job) -> None:
    """Whose job this is gets at nothing of the other's."""
    run = f"/run/moorage/{other.id}"
    found = [run, *places(job.shell, f"{run}/user", f"{run}/scratch", deepest=2)]
    assert facts(other.output)["kubeconfig"].text in found
    assert successes(job.shell, job.user, found) == {}


def finish(job: Job) -> None:
    """Only now does it look for what it has: the other one was there all the time."""
    let_go_on(job)
    job.wait_gone()
    found = facts(job.output)
    assert found["nodes"].text == "node/berth1", job.output
    assert found["notes"].text == job.id
    assert found["containers"].lines == [f"moorage-{job.id}-control-plane"]
    assert job.accounted("ExitCode") == ["0:0"]
