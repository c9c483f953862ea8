"""A user whom a node cannot serve: his jobs fail with the reason, and the node is none the worse for it."""

from __future__ import annotations

import time

from support.figures import Figures
from virtual.arrays import ends, number, outputs, submission
from virtual.broken import during
from virtual.cluster import Cluster

TIMES = {"trixie": 20, "unstable": 5}
CAROL = (
    "moorage: user carol has no subordinate uids on this node: "
    "ask the administrator for a range of 65536 (/etc/subuid, or the directory of users)"
)
ROOT = "moorage: root has no use for --k8s: submit the job as a user"


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
