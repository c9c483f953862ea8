"""What tests of the walk share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from virtual.guest.cluster import Cluster
from virtual.jobs.batch import run
from virtual.jobs.container_job import wait_until
from virtual.probes.leftovers import Watch, make_ready

# What `make test` has no time for. The full tests run all of it, and so does who names running guests by --lab.
LONG = (
    "test_broken_nodes",
    "test_cost",
    "test_health_check",
    "test_hostile",
    "test_losses",
    "test_power_cuts",
    "test_interruptions",
    "test_uplinks",
)
# These restart Slurm itself.
LONG_TESTS = ("test_a_job_of_eight_tasks_with_two_cores_each",)
# What is most likely to differ between releases of Slurm.
ON_BOTH_SUITES = ("test_option", "test_podman")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("MOORAGE_FULL") or config.getoption("--lab"):
        return
    left_out = [item for item in items if item.path.parent == Path(__file__).parent and takes_long(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def takes_long(item: pytest.Item) -> bool:
    name = item.path.stem
    return name in LONG or item.name.startswith(LONG_TESTS) or ("[unstable" in item.name and name not in ON_BOTH_SUITES)


@pytest.fixture(scope="module")
def watch(lab: Cluster) -> Iterator[Watch]:
    """The first node, on which alice is logged in elsewhere, too: her own systemd is there, whoever comes and goes."""
    shell = lab.first.shell
    make_ready(lab.first)
    shell.run(["loginctl", "enable-linger", "alice"])
    manager = ["systemctl", "is-active", "--quiet", "user@1001.service"]
    wait_until(lambda: shell.run(manager, ok=range(256)).code == 0, "alice's systemd has not come up")
    # Who has been here once has keyrings, which stay.
    run(shell, "true")
    yield Watch(lab, lab.first)
    shell.run(["loginctl", "disable-linger", "alice"])
