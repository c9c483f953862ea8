"""What the checks that a site runs make of what the doctor says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CHECKS = Path(__file__).parents[1] / "testinfra/test_node.py"
VERSIONS = {
    "image localhost/node:v1.36.3": "sha",
    "kernel": "6.12.48",
    "moorage": "0.1",
    "podman": "podman version 5.4.2",
    "slurm": "slurm-wlm 24.11.5",
}


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_checks", CHECKS)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(node: str, *findings: dict[str, str], **versions: str) -> dict[str, Any]:
    return {"node": node, "findings": list(findings), "not_looked_at": [], "versions": VERSIONS | versions}


def test_a_fault_is_told_with_node_cause_and_remedy(checks: ModuleType) -> None:
    fault = {"check": "sysctl", "cause": "kernel.keys.maxkeys is 200", "remedy": "set it to 1000", "fault": "node"}
    advice = {"check": "store", "cause": "jobs copy", "remedy": "move it", "fault": "advice"}
    with pytest.raises(AssertionError, match=r"^n1: sysctl: kernel\.keys\.maxkeys is 200: set it to 1000$"):
        checks.test_nothing_would_keep_a_job_from_starting(report("n1", fault, advice))
    checks.test_nothing_would_keep_a_job_from_starting(report("n1", advice))


def test_what_only_root_may_look_at_is_missed(checks: ModuleType) -> None:
    with pytest.raises(AssertionError, match=r"^n1: scratch, store: only root may look at that: pytest --sudo$"):
        checks.test_everything_was_looked_at(report("n1") | {"not_looked_at": ["scratch", "store"]})


@pytest.mark.parametrize(
    ("other", "lines"),
    [
        ({}, []),
        ({"kernel": "6.13"}, []),
        (
            {"podman": "podman version 5.8.1"},
            [
                "n2: podman is podman version 5.8.1, and podman version 5.4.2 on n1: install the same on both",
            ],
        ),
        (
            {"image localhost/node:v1.36.3": "another", "moorage": "0.2"},
            [
                "n2: image localhost/node:v1.36.3 is another, and sha on n1: moorage image add on both from the same "
                "archive, and moorage image prepare on both or on none",
                "n2: moorage is 0.2, and 0.1 on n1: run the role on both, with the same wheels",
            ],
        ),
    ],
)
def test_nodes_that_differ_are_told(checks: ModuleType, other: dict[str, str], lines: list[str]) -> None:
    seen: dict[str, tuple[str, str]] = {}
    assert checks.skew(report("n1"), seen) == []
    assert checks.skew(report("n2", **other), seen) == lines
