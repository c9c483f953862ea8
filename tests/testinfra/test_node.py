"""Are these nodes fit for jobs with --k8s? For a site: pytest tests/testinfra --hosts=ssh://node1,ssh://node2 --sudo"""

from __future__ import annotations

import json
from typing import Any

import pytest
from testinfra.host import Host

MOORAGE = "/opt/moorage/bin/moorage"
# Of these, and of each node image, the nodes of one job need the same.
SAME = ("moorage", "slurm", "shim", "podman", "kind")
REMEDIES = {
    "moorage": "run the role on both, with the same wheels",
    "shim": "build it again where it is of another Slurm",
    "image": "moorage image add on both from the same archive, and moorage image prepare on both or on none",
}

Report = dict[str, Any]
# The version of each thing that was met first, and the node that has it.
Seen = dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def report(host: Host) -> Report:
    """All that the doctor knows of the node, the checks of the Prolog among it."""
    said = host.run(f"{MOORAGE} doctor --json")
    if not said.stdout:
        pytest.fail(f"moorage doctor did not run: {said.stderr.strip()}: is Moorage installed there?", pytrace=False)
    found: Report = json.loads(said.stdout)
    return found


@pytest.fixture(scope="session")
def seen() -> Seen:
    return {}


def test_nothing_would_keep_a_job_from_starting(report: Report) -> None:
    faults = [one for one in report["findings"] if one["fault"] != "advice"]
    lines = [f"{report['node']}: {one['check']}: {one['cause']}: {one['remedy']}" for one in faults]
    assert not faults, "\n".join(lines)


def test_everything_was_looked_at(report: Report) -> None:
    left_out = ", ".join(report["not_looked_at"])
    assert not left_out, f"{report['node']}: {left_out}: only root may look at that: pytest --sudo"


def test_jobs_over_several_nodes_find_the_same_on_each(report: Report, seen: Seen) -> None:
    """Compared with the nodes before this one; where only one is looked at there is nothing to compare."""
    differences = skew(report, seen)
    assert not differences, "\n".join(differences)


def skew(report: Report, seen: Seen) -> list[str]:
    lines = []
    for what, version in report["versions"].items():
        kind = what.partition(" ")[0]
        if what in SAME or kind == "image":
            other, before = seen.setdefault(what, (report["node"], version))
            if version != before:
                remedy = REMEDIES.get(kind, "install the same on both")
                lines.append(f"{report['node']}: {what} is {version}, and {before} on {other}: {remedy}")
    return lines
