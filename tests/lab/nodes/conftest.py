"""What tests of jobs over several nodes share: two guests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from virtual.guest.broken_node import configured
from virtual.guest.cluster import Cluster
from virtual.guest.user_session import user_session
from virtual.jobs.batch import run
from virtual.jobs.fabric_job import Victim, waiting
from virtual.probes.leftovers import Watch, make_ready, nothing_left_on

AS_IT_IS = "node_fault: fail"


@pytest.fixture(scope="module")
def watches(lab: Cluster) -> Iterator[list[Watch]]:
    """Both nodes, on which alice and bob are logged in elsewhere, too, and have been in a job before."""
    with ExitStack() as stack:
        for machine in lab.machines:
            make_ready(machine)
            for user in ("alice", "bob"):
                stack.enter_context(user_session(machine.shell, user))
            # What other settings and breakages are made with is there from now on.
            with configured(machine.shell, AS_IT_IS):
                pass
        lab.wait_idle()
        for user in ("alice", "bob"):
            run(lab.first.shell, "srun true", "--nodes=2", "--ntasks-per-node=1", "--mem=100M", user=user)
        yield [Watch(lab, machine) for machine in lab.machines]


@pytest.fixture(scope="module")
def victim(lab: Cluster, watches: list[Watch]) -> Iterator[Victim]:
    """With the module's last test it ends, and leaves nothing on any node."""
    with nothing_left_on(watches) as endings, waiting(lab) as found:
        endings[found.job.id] = "normal end"
        yield found
