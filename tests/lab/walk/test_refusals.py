"""A user or a job whom a node cannot serve: it fails with the reason, and the node is none the worse for it."""

from __future__ import annotations

import time

import pytest

from support.figures import Figures
from virtual.arrays import ends, number, outputs, refusal, submission
from virtual.broken import during
from virtual.cluster import Cluster

TIMES = {"trixie": 20, "unstable": 5}
CAROL = (
    "moorage: user carol has no subordinate uids on this node: "
    "ask the administrator for a range of 65536 (/etc/subuid, or the directory of users)"
)
ROOT = "moorage: root has no use for --k8s: submit the job as a user"
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
