"""slurmd itself looks after a node's health, by the script as it is shipped: a fault drains the node, and says why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from virtual.build.installation import SOURCE
from virtual.guest.broken_node import during
from virtual.guest.cluster import Cluster
from virtual.guest.cores import take_up
from virtual.guest.shell import Shell
from virtual.jobs.container_job import wait_until

pytestmark = pytest.mark.long

CONF = "/etc/slurm/slurm.conf"
KEPT = f"{CONF}.kept"
SHIPPED = "/etc/slurm/moorage-health-check"
# Calls it as a site's own does, and writes down what it ends with: so a round can be waited for.
PROGRAM = "/etc/slurm/health-check"
ENDS = "/run/lab-health-checks"
# In seconds. Under emulation a round takes some of them.
EACH = 20
LIMIT = 240
INSTALLED = rf"""
printf '#!/bin/sh\n{SHIPPED}\necho $? >>{ENDS}\n' >{PROGRAM}
chmod 755 {PROGRAM}
cp --archive {CONF} {KEPT}
printf 'HealthCheckProgram={PROGRAM}\nHealthCheckInterval={EACH}\n' >>{CONF}
"""
REMOVED = f"mv {KEPT} {CONF}; rm -f {PROGRAM} {SHIPPED} {ENDS}"
UNTIL_DRAINED = "until scontrol --oneliner show node n1 | grep -q Reason=moorage; do sleep 0.5; done"
RESUMED = ("scontrol", "update", "nodename=n1", "state=resume")


@pytest.fixture
def shell(lab: Cluster) -> Iterator[Shell]:
    """The first node, where Slurm's controller is as well: it says when nodes are to look."""
    shell = lab.first.shell
    lab.wait_idle()
    shell.put(SOURCE / "config/health-check", SHIPPED, mode="755")
    shell.run(["sh", "-euc", INSTALLED])
    try:
        take_up(lab)
        yield shell
    finally:
        shell.run(["sh", "-euc", REMOVED])
        # Where it is not drained that is no error of this test's.
        shell.run(RESUMED, ok=(0, 1))
        take_up(lab)


def ends(shell: Shell) -> list[str]:
    """Of each round so far."""
    return shell.output("sh", "-c", f"cat {ENDS} 2>/dev/null || true").split()


def rounds(shell: Shell, count: int) -> None:
    """Wait for so many that begin from now on: one may be under way."""
    wanted = len(ends(shell)) + count + 1
    wait_until(lambda: len(ends(shell)) >= wanted, f"slurmd has not run {PROGRAM} {wanted} times", LIMIT)


def test_a_fault_drains_the_node_and_a_sound_one_is_left_alone(lab: Cluster, shell: Shell) -> None:
    rounds(shell, 1)
    assert lab.node_states()[0] == "idle"
    during(shell, "no podman", ["timeout", str(LIMIT), "sh", "-c", UNTIL_DRAINED])
    node = shell.output("scontrol", "--oneliner", "show", "node", "n1")
    assert "Reason=moorage: podman: Podman is not installed: install podman 4.9 or newer" in node
    assert "DRAIN" in node
    rounds(shell, 1)
    shell.run(RESUMED)
    lab.wait_idle(limit=60)
    rounds(shell, 1)
    assert lab.node_states()[0] == "idle"
    assert set(ends(shell)) == {"0"}
