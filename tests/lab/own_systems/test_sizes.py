"""The lab's largest sizes: three guests that could carry Kubernetes, four for Slurm alone."""

from __future__ import annotations

import time

import pytest

from support.figures import Figures
from virtual.build.cache import CACHE
from virtual.guest import builds
from virtual.guest.record import Request

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-sizes"
PORT = 22400


@pytest.mark.parametrize(("nodes", "most"), [(3, 240), (4, 300)])
def test_all_nodes_work_together(nodes: int, most: int, figures: Figures) -> None:
    began = time.monotonic()
    with builds.own(DIRECTORY, Request(nodes, "trixie", PORT)) as lab:
        figures.add(f"{nodes} guests to an idle Slurm", time.monotonic() - began, "s", at_most=most)
        hosts = lab.first.shell.output("srun", f"--nodes={nodes}", "hostname", user="alice")
        assert sorted(hosts.split()) == [machine.name for machine in lab.machines]
