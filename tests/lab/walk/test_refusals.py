"""A user or a job whom a node cannot serve: it fails with the reason, and the node is none the worse for it."""

from __future__ import annotations

import re
import time

import pytest

from support.faults.fault import CODE
from support.figures import Figures
from virtual.guest.broken_node import configured, during
from virtual.guest.cluster import Cluster
from virtual.jobs.arrays import RAN, ends, number, outputs, refusal, submission

TIMES = {"trixie": 20, "unstable": 5}
CAROL = (
    "moorage: user carol has no subordinate uids on this node: "
    "ask the administrator for a range of 65536 (/etc/subuid, or the directory of users) [M-SUBID-1]"
)
ROOT = "moorage: root cannot use --k8s: submit the job as a user [M-USER-1]"
# What was asked for of the node, and what its agent makes of it.
TOO_SMALL = {
    "memory for Podman": (
        ("--mem=159M",),
        r"this job has 159 MiB of memory on this node, of which 128 MiB are kept for its script:"
        r" ask for at least 160 MiB \(--mem\)",
    ),
    "CPUs for a cluster": (
        ("--k8s=1", "--cpus-per-task=1", "--mem=3G"),
        r"this job has 1 CPU and 3G on its node, and a cluster needs 2 CPUs and 3G: add --cpus-per-task=2",
    ),
    "memory for a cluster": (
        ("--k8s=1", "--cpus-per-task=2", "--mem=1G"),
        r"this job has 2 CPUs and 1G on its node, and a cluster needs 2 CPUs and 3G: add --mem=3G",
    ),
}
# One of the site's rules, what is asked of Slurm, and what the job is told: it shows what slurmd says of a job.
RULES = {
    "groups: [bob]": ((), "user alice may not use --k8s here (policy.groups): "),
    "accounts: [others]": (
        ("--account=crew",),
        "account 'crew' may not use --k8s here (policy.accounts): submit with --account=others, or ",
    ),
    "partitions: [spare]": (
        (),
        "partition 'main' may not use --k8s here (policy.partitions): submit with --partition=spare, or ",
    ),
    "most_nodes: 1": (
        ("--nodes=2", "--nodelist=n1,n2"),
        "this job has 2 nodes, and one with --k8s may have 1 (policy.most_nodes): ask for nodes=1, or ",
    ),
}
MET_BY_ALICE = "groups: [alice], accounts: [CREW], partitions: [main], most_nodes: 1"


def test_a_user_without_subordinate_ids_never_drains_the_node(lab: Cluster, figures: Figures) -> None:
    """Not even where the faults of a node do."""
    lab.wait_idle()
    times, shell, began = TIMES[lab.request.suite], lab.first.shell, time.monotonic()
    array = number(during(shell, "faults drain", submission("carol", times), ok=(1,)).stdout)
    # A drained node would not become idle again.
    lab.wait_idle(limit=60)
    seconds = time.monotonic() - began
    assert outputs(shell, array, "carol", times) == [CAROL] * times
    assert ends(shell, array) == ["FAILED|1:0"] * times
    figures.add(f"a refused job, one of {times}, from submission to idle, {lab.request.suite}", seconds / times, "s")


def test_root_is_told_to_be_a_user(lab: Cluster) -> None:
    shell = lab.first.shell
    array = number(shell.run(submission("root"), ok=(1,)).stdout)
    lab.wait_idle(limit=60)
    assert outputs(shell, array, "root") == [ROOT]
    assert ends(shell, array) == ["FAILED|1:0"]


@pytest.mark.parametrize("what", TOO_SMALL)
def test_a_job_that_is_too_small_is_told_what_to_ask_for(lab: Cluster, what: str) -> None:
    options, line = TOO_SMALL[what]
    shell = lab.first.shell
    array = number(shell.run(submission("alice", 1, *options), ok=(1,)).stdout)
    lab.wait_idle(limit=60)
    (said,) = outputs(shell, array, "alice")
    assert refusal(said, line), said
    assert ends(shell, array) == ["FAILED|1:0"]


@pytest.mark.parametrize("rule", RULES)
def test_a_job_against_a_rule_of_the_sites_is_told_which(lab: Cluster, rule: str) -> None:
    options, line = RULES[rule]
    if "--nodes=2" in options and lab.request.nodes < 2:
        pytest.skip("this lab has one node")
    shell = lab.first.shell
    with configured(shell, f"policy: {{{rule}, contact: the captain}}"):
        array = number(shell.run(submission("alice", 1, *options), ok=(1,)).stdout)
        lab.wait_idle(limit=60)
    (said,) = outputs(shell, array, "alice")
    assert re.fullmatch(re.escape(f"moorage: {line}ask the captain") + CODE, said), said
    assert ends(shell, array) == ["FAILED|1:0"]


def test_a_job_that_meets_every_rule_is_served(lab: Cluster) -> None:
    shell = lab.first.shell
    with configured(shell, f"policy: {{{MET_BY_ALICE}}}"):
        array = number(shell.run(submission("alice", 1, "--mem=400M", "--account=crew")).stdout)
        lab.wait_idle(limit=60)
    (said,) = outputs(shell, array, "alice")
    assert RAN in said.splitlines()
    assert ends(shell, array) == ["COMPLETED|0:0"]
