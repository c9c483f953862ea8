"""Guests go back to a kept moment, and come back from a power cut."""

from __future__ import annotations

import time

import pytest

from support.figures import Figures
from virtual.guest.cluster import Cluster

pytestmark = pytest.mark.both_suites

RESTORE_LIMIT = 30


@pytest.mark.parametrize("lab", ["trixie"], indirect=True)
def test_restore_forgets_what_came_after(lab: Cluster, figures: Figures) -> None:
    lab.snapshot()
    for machine in lab.machines:
        machine.shell.run(["touch", "/etc/after-the-snapshot"])
    began = time.monotonic()
    lab.restore()
    figures.add("restore of two guests to an idle Slurm", time.monotonic() - began, "s", at_most=RESTORE_LIMIT)
    assert lab.node_states() == ["idle"] * len(lab.machines)
    for machine in lab.machines:
        machine.shell.run(["test", "!", "-e", "/etc/after-the-snapshot"])
        assert abs(float(machine.shell.output("date", "+%s.%N")) - time.time()) < 5
    assert lab.first.shell.output("srun", "--nodes=2", "hostname", user="alice")


@pytest.mark.parametrize("lab", ["trixie"], indirect=True)
def test_a_power_cut_is_survived(lab: Cluster) -> None:
    machine = lab.machines[-1]
    # Slurm takes minutes to forgive a node that was cut off while it completed a job.
    lab.wait_idle()
    before = machine.boot_id()
    lab.reset(machine.name)
    assert machine.boot_id() != before
    assert lab.first.shell.output("srun", f"--nodelist=n{machine.number}", "hostname", user="alice") == machine.name
