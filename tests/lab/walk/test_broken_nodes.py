"""Each thing that a node must have, taken from it for real: one line says what is wrong and what to do."""

from __future__ import annotations

import re

import pytest

from support.breakable import breakable
from support.faults.catalogue import AGENT, DRAINS, FAILS
from support.faults.fault import CODE
from support.figures import Figures
from virtual.guest.broken_node import Outcome, during, prologs
from virtual.guest.cluster import Cluster
from virtual.guest.needs import possible
from virtual.jobs.arrays import RAN, ends, number, outputs, refusal, submission
from virtual.jobs.batch import MOORED, submit

pytestmark = pytest.mark.long

NO_HOOK = {"no prolog": r"the Prolog has not prepared this node for job \d+: tell the administrator of this node: .*"}
# What jobs are really sent for; the others start the same hook in the same way.
JOBS = ["no podman", "overlapping subuids", "scratch writable by all", "typo", *NO_HOOK]
UNTIL_DRAINED = 'scontrol release "$1"; until scontrol show node n1 | grep -q DRAIN; do sleep 0.3; done'
LIMIT = 120
# One after the other takes minutes, and the checks ask no Slurm: one release of it is enough.
ON_ONE_RELEASE = pytest.mark.parametrize("lab", ["trixie"], indirect=True)
SERVES = ("sound", "faults drain", "sound again")


@pytest.fixture(scope="module")
def outcomes(lab: Cluster, figures: Figures) -> dict[str, Outcome]:
    lab.wait_idle()
    breakages = possible(lab, (*FAILS, *DRAINS))
    found = prologs(lab.first.shell, "sound", "faults drain", *breakages, "no product", "sound again")
    figures.add("Prolog of a served job", found["sound"].seconds, "s")
    slowest = max(outcome.seconds for name, outcome in found.items() if name in FAILS)
    figures.add(f"Prolog of a refused job, slowest of {len(FAILS)}", slowest, "s")
    return found


@ON_ONE_RELEASE
@pytest.mark.parametrize("name", SERVES)
def test_a_sound_node_serves(outcomes: dict[str, Outcome], name: str) -> None:
    """Also after all that was done to it."""
    sound = outcomes[name]
    assert (sound.code, sound.said, sound.refusal, sound.gone) == (0, "", "", True)
    assert {"job.json", "scratch", "user", "warden.sock"} <= set(sound.made)


@ON_ONE_RELEASE
@pytest.mark.parametrize("name", breakable(FAILS))
def test_what_fails_a_job(outcomes: dict[str, Outcome], name: str) -> None:
    """One line, nothing else made, and nothing for slurmd to hold against the node."""
    found = outcomes[name]
    assert (found.code, found.said, found.made, found.gone) == (0, "", ["refusal", "release"], True), found
    assert re.fullmatch(FAILS[name] + CODE + "\n", found.refusal), found.refusal


@ON_ONE_RELEASE
@pytest.mark.parametrize("name", breakable(DRAINS))
def test_what_drains_the_node(outcomes: dict[str, Outcome], name: str) -> None:
    found = outcomes[name]
    assert (found.code, found.gone) == (1, True), found
    assert re.fullmatch(DRAINS[name] + CODE, found.journal), found.journal


@ON_ONE_RELEASE
def test_a_node_without_the_product_is_drained(outcomes: dict[str, Outcome]) -> None:
    found = outcomes["no product"]
    assert found.code not in (0, 1)
    assert "/opt/moorage/bin/python3: not found" in found.said


@pytest.mark.parametrize("name", JOBS)
def test_a_job_ends_with_the_line_and_the_node_is_idle(lab: Cluster, name: str) -> None:
    shell = lab.first.shell
    array = number(during(shell, name, submission("alice"), ok=(1,)).stdout)
    lab.wait_idle(limit=60)
    (said,) = outputs(shell, array, "alice")
    assert re.fullmatch("moorage: " + (FAILS | NO_HOOK)[name] + CODE, said), said
    assert ends(shell, array) == ["FAILED|1:0"]


@ON_ONE_RELEASE
@pytest.mark.parametrize("name", AGENT)
def test_what_only_the_job_itself_runs_into(lab: Cluster, name: str) -> None:
    shell = lab.first.shell
    array = number(during(shell, name, submission("alice", 1, "--mem=300M"), ok=(1,)).stdout)
    lab.wait_idle(limit=60)
    (said,) = outputs(shell, array, "alice")
    assert refusal(said, AGENT[name]), said
    assert ends(shell, array) == ["FAILED|1:0"]


@pytest.mark.parametrize("name", ["no shim", "shim of another release", "drain"])
def test_a_job_waits_for_a_node_that_can_serve_it(lab: Cluster, name: str) -> None:
    """Held before the node is broken, for this one is also where it is submitted. The script never runs unserved."""
    shell = lab.first.shell
    job = submit(shell, f"echo {RAN}", MOORED, "--hold", "--nodelist=n1", "--mem=100M")
    try:
        during(shell, name, ["timeout", str(LIMIT), "sh", "-c", UNTIL_DRAINED, "sh", job.id])
        node = shell.output("scontrol", "--oneliner", "show", "node", "n1")
        assert "Reason=Prolog error" in node
        assert job.wait_state("PENDING")
        assert shell.run(["cat", job.place], user="alice", ok=(0, 1)).stdout == ""
    finally:
        job.cancel()
        shell.run(["scontrol", "update", "nodename=n1", "state=resume"])
        lab.wait_idle(limit=60)
