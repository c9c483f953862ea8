"""Nodes whose kernel knows nothing of IPv6: jobs get out by each uplink, and reach each other over the fabric.

In guests of their own, because a kernel has IPv6 or not from its start.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from virtual.build.cache import CACHE
from virtual.guest import builds
from virtual.guest.cluster import Cluster, running
from virtual.guest.record import Request
from virtual.guest.router import a_router
from virtual.jobs.batch import run
from virtual.jobs.fabric_job import ADDRESS, MOORED, PRELUDE, SHAPE
from virtual.jobs.facts import SHELL, facts
from virtual.probes.leftovers import Watch, make_ready, nothing_left_on

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-ipv6"
PORT = 23000
SSH = 22
# By its way out a container comes to the ssh of the other host, which greets everybody.
ASKS = rf"""
{SHELL}
fact there ask {ADDRESS.format(1)}
fact back on n2 bash -c 'ask {ADDRESS.format(0)}'
fact outside podman exec hand sh -c 'timeout 60 nc 10.77.0.2 {SSH} </dev/null | head -c 3'
exit 3
"""


@pytest.fixture(scope="module")
def guests(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if directory := request.config.getoption("--lab"):
        yield running(directory)
        return
    builds.build("trixie")
    with builds.own(DIRECTORY, Request(2, "trixie", PORT, ipv6=False)) as lab:
        yield lab


@pytest.fixture(scope="module")
def watches(guests: Cluster) -> Iterator[list[Watch]]:
    for machine in guests.machines:
        assert machine.shell.run(["test", "-e", "/proc/sys/net/ipv6"], ok=(0, 1)).code == 1
        make_ready(machine)
    # Who has been here once has keyrings, which stay.
    run(guests.first.shell, "srun true", "--nodes=2", "--ntasks-per-node=1", "--mem=100M")
    with a_router(guests.machines[0].shell), a_router(guests.machines[1].shell):
        yield [Watch(guests, machine) for machine in guests.machines]


@pytest.mark.parametrize("uplink", ["pasta", "slirp4netns", "kernel", "none"])
def test_a_job_over_two_nodes(guests: Cluster, watches: list[Watch], uplink: str) -> None:
    with nothing_left_on(watches) as endings:
        job = run(guests.first.shell, PRELUDE + ASKS, f"{MOORED},uplink={uplink}", "--nodes=2", *SHAPE)
        endings[job.id] = f"normal end, by {uplink}"
    found = facts(job.output)
    said = [found[name].lines[-1] for name in ("there", "back")]
    assert said == [f"hand of {job.id} on n2", f"hand of {job.id} on n1"]
    assert (found["outside"].text == "SSH") == (uplink != "none"), found["outside"]
    assert job.end == ("FAILED", "3:0")
