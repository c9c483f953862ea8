"""What tests of the walk share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from virtual.guest.cluster import Cluster
from virtual.jobs.batch import run
from virtual.jobs.container_job import wait_until
from virtual.probes.leftovers import Watch, make_ready


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
