"""After a power cut the node clears up by itself, and takes jobs again."""

from __future__ import annotations

import pytest

from virtual.guest.cluster import Cluster
from virtual.jobs.batch import MOORED, run
from virtual.jobs.container_job import RUN, container_job
from virtual.probes.leftovers import AT_A_POWER_CUT, EXCLUDED, Watch

pytestmark = pytest.mark.long


def test_a_power_cut_in_the_prolog_and_one_while_the_job_runs(lab: Cluster) -> None:
    """On the last node: where there are two it is not the one with the controller."""
    machine = lab.machines[-1]
    here = f"--nodelist=n{machine.number}"
    watch = Watch(lab, machine, excluded=(*EXCLUDED, AT_A_POWER_CUT))
    with watch.nothing_left() as endings:
        starting = container_job(lab.first.shell, "wait", here, "--no-requeue")
        endings[starting.id] = "power cut in its Prolog"
        state = f"/var/lib/moorage/jobs/{starting.id}.json"
        machine.shell.run(["timeout", "60", "sh", "-c", f"until [ -e {state} ]; do :; done"])
        lab.reset(machine.name)
    with watch.nothing_left() as endings:
        running = container_job(lab.first.shell, "wait", here, "--no-requeue")
        endings[running.id] = "power cut while it ran"
        running.wait_said("^containers run")
        lab.reset(machine.name)
        job = run(lab.first.shell, f"podman load --quiet --input /srv/lab/shell.tar; {RUN} echo again", MOORED, here)
        endings[job.id] = "the next one"
    assert "again" in job.output
    for job in (starting, running):
        assert job.accounted("State") == ["NODE_FAIL"]
