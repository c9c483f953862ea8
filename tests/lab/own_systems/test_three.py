"""A cluster over three nodes: two join at the same time, and the rest goes on when one of them is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.figures import Figures
from virtual.build.cache import CACHE
from virtual.guest import builds
from virtual.guest.cluster import BOOT_LIMIT, Cluster, running
from virtual.guest.device import GRES, LABEL
from virtual.guest.machine import Machine
from virtual.guest.record import Request
from virtual.jobs.cluster_job import ready
from virtual.jobs.multi_node_job import PODS, SCRIPT, Spread, between_guests, speed, spread, stamps
from virtual.jobs.pause import let_go_on
from virtual.probes.leftovers import AT_A_POWER_CUT, EXCLUDED, report, settled

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-three"
PORT = 22900
SUITE = "trixie"
LOST = "berth3"
# A node is given up by Kubernetes long after it was lost: in the lab nothing is in a hurry.
GIVES_UP = 1800
# With the device it succeeds, wherever it has come to run.
OPENS = SCRIPT.replace("status.phase}=Failed", "status.phase}=Succeeded")
# In seconds, of the moments that are compared.
CLOCKS_RESOLUTION = 1.0
AFTERWARDS = f"""
fact lost kubectl wait --for=condition=Ready=Unknown --timeout={GIVES_UP}s node/{LOST}
fact rest srun --overlap --nodes=1 --ntasks=1 --nodelist=n2 kubectl get nodes --no-headers
fact works kubectl exec near -- echo works
exit 3
"""


@pytest.fixture
def three(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if directory := request.config.getoption("--lab"):
        yield running(directory)
        return
    builds.build(SUITE)
    with builds.own(DIRECTORY, Request(3, SUITE, PORT)) as lab:
        yield lab


def test_three_nodes_of_which_one_is_lost(three: Cluster, figures: Figures) -> None:
    with spread(three, "--no-kill", GRES, script=OPENS + AFTERWARDS) as cluster:
        check_start(cluster, figures)
        check_network(three, cluster, figures)
        with lost(three, three.machine(LOST)):
            let_go_on(cluster.job)
            cluster.job.wait_gone(GIVES_UP + 600)
        check_end(three, cluster)


def check_start(cluster: Spread, figures: Figures) -> None:
    rows = [line.split()[:2] for line in cluster["first"].splitlines()]
    assert sorted(rows) == [[node.machine.name, "Ready"] for node in cluster.nodes]
    given = {name: node["metadata"]["labels"].get(LABEL) for name, node in cluster.objects("Node").items()}
    assert given == {node.machine.name: "1" for node in cluster.nodes}
    output = cluster.job.output
    for name, told in stamps(output).items():
        print(name, *(f"{moment:9.1f} s  {text}" for moment, text in told), sep="\n")
    joins = cluster.joins
    assert {*joins} == {"n2", "n3"}
    shown = ", ".join(f"{name} from {begun:.1f} to {known:.1f} s" for name, (begun, known) in sorted(joins.items()))
    common = min(known for _, known in joins.values()) - max(begun for begun, _ in joins.values())
    figures.add(f"joins at the same time ({shown})", common, "s", at_least=CLOCKS_RESOLUTION)
    figures.add("start-up of a job with a cluster over 3 nodes, as its output has it", ready(output), "s")


def check_network(lab: Cluster, cluster: Spread, figures: Figures) -> None:
    """All that the two nodes of the other test do, three do as well."""
    everybody = {node.machine.name for node in cluster.nodes}
    assert cluster.where("web") == dict.fromkeys(everybody, 1)
    crew = cluster.where("crew")
    assert ({*crew}, sum(crew.values())) == (everybody, PODS)
    assert cluster["exec"] == cluster["forwarded"] == "far answers"
    assert cluster["nodeport"] in {f"web on {name}" for name in everybody}
    assert cluster["elsewhere"].splitlines()[0] == LOST
    for node in cluster.nodes:
        assert cluster.outside(node) == set()
    pods, guests = speed(cluster["speed"]), between_guests(lab)
    figures.add("pod to pod of three nodes, of the guests' own path", pods / guests, "")


@contextmanager
def lost(lab: Cluster, machine: Machine) -> Iterator[None]:
    """It answers nobody, and Slurm gives it up, for which else it takes its time; after the block it boots anew."""
    node = ["scontrol", "update", f"nodename=n{machine.number}"]
    before = machine.boot_id()
    machine.pause()
    lab.first.shell.run([*node, "state=down", "reason=lost"])
    try:
        yield
    finally:
        machine.reset()
        machine.resume()
        machine.wait_boot(before, BOOT_LIMIT)
        # It may have come back by itself.
        lab.first.shell.run([*node, "state=resume"], ok=(0, 1))


def check_end(lab: Cluster, cluster: Spread) -> None:
    """The script has gone on to its own end, with a cluster that misses one node."""
    lab.wait_idle()
    for node in cluster.nodes:
        left = settled(node.machine, node.before, (*EXCLUDED, AT_A_POWER_CUT))[1]
        assert left == [], f"{node.machine.name} keeps {report(left)}"
    cluster.hear()
    assert cluster["lost"]
    states = dict(line.split()[:2] for line in cluster["rest"].splitlines())
    assert states == {"berth1": "Ready", "berth2": "Ready", LOST: "NotReady"}
    assert cluster["works"] == "works"
    assert cluster.job.accounted("ExitCode") == ["3:0"]
