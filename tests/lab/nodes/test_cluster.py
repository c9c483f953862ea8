"""One cluster over the nodes of its job: what works in it, where it is, who gets at it, and what is left of it.

One after the other: the last test ends the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from moorage.node.network_demands import JOBS_PORTS
from support.figures import Figures
from virtual.guest.cluster import Cluster
from virtual.guest.device import LABEL, REFUSED
from virtual.guest.router import a_router
from virtual.jobs.cluster_job import ready
from virtual.jobs.multi_node_job import MEMORY, PODS, STRANGER, USER, Spread, between_guests, speed, spread, stamps
from virtual.jobs.pause import let_go_on
from virtual.probes.fabric import LAST_WORD, Message, receiver, send
from virtual.probes.job_limits import MIB, count, share
from virtual.probes.leftovers import report, settled
from virtual.probes.open_ports import answering
from virtual.probes.processes import places

pytestmark = pytest.mark.parametrize("lab", ["trixie"], indirect=True)

SSH = 22
FABRIC = 339
# What the job's containers, and of that the pods, are not given of its memory, in MiB.
RESERVES = 128 + 512
OUTSIDE = 5001
# What curl ends with where there is no TLS, or no more of a connection.
HUNG_UP = (35, 56)


@pytest.fixture(scope="module")
def cluster(lab: Cluster) -> Iterator[Spread]:
    """By the uplink `kernel`, which comes first where the site allows it; three nodes have one of Podman's own."""
    with ExitStack() as stack:
        for machine in lab.machines:
            stack.enter_context(a_router(machine.shell))
        yield stack.enter_context(spread(lab))


def test_the_first_line_of_the_script_sees_every_node_ready(cluster: Spread, figures: Figures) -> None:
    rows = [line.split()[:2] for line in cluster["first"].splitlines()]
    assert sorted(rows) == [[node.machine.name, "Ready"] for node in cluster.nodes]
    for name, told in stamps(cluster.job.output).items():
        print(name, *(f"{moment:9.1f} s  {text}" for moment, text in told), sep="\n")
    for name, (begun, known) in cluster.joins.items():
        figures.add(f"join of {name}, begun {begun:.1f} s after the start of its job", known - begun, "s")
    what = f"start-up of a job with a cluster over {len(cluster.nodes)} nodes, as its output has it"
    figures.add(what, ready(cluster.job.output), "s")


def test_nodes_are_labelled_with_what_slurm_gave_and_offer_no_more(cluster: Spread) -> None:
    known = cluster.objects("Node")
    for node in cluster.nodes:
        shown = known[node.machine.name]
        labels, offered = shown["metadata"]["labels"], shown["status"]["allocatable"]
        of_job = share(node.machine.shell, cluster.cgroups[node.slurms_name])
        cpus = count(of_job.cpus)
        assert labels["moorage/node"] == node.slurms_name
        assert labels["moorage/cpus"] == str(cpus)
        assert labels["moorage/memory"] == str(MEMORY)
        assert of_job.memory == MEMORY
        assert offered["cpu"] == f"{cpus * 1000 - 100}m"
        assert kibibytes(offered["memory"]) << 10 == (MEMORY - RESERVES) * MIB


def test_a_service_has_pods_on_every_node_and_answers_on_every_node(cluster: Spread) -> None:
    """Each of them is ready once all have answered it by the name of the service."""
    assert "successfully rolled out" in cluster["web"]
    assert cluster.where("web") == {node.machine.name: 1 for node in cluster.nodes}


def test_twenty_pods_on_all_nodes_find_each_other_by_name(cluster: Spread) -> None:
    """Each of them is ready once it has found all."""
    assert f"{PODS} pods" in cluster["crew"]
    found = cluster.where("crew")
    assert [*found] == [node.machine.name for node in cluster.nodes]
    assert sum(found.values()) == PODS


def test_a_pod_on_another_node_is_reached_as_if_it_were_here(cluster: Spread) -> None:
    assert cluster["log"].splitlines()[0] == "far speaks"
    assert cluster["exec"] == cluster["forwarded"] == "far answers"


def test_a_node_port_answers_inside_the_job(cluster: Spread) -> None:
    """Asked by a container of the job's beside the cluster, at the last node."""
    assert cluster["nodeport"] in {f"web on {node.machine.name}" for node in cluster.nodes}


def test_kubectl_works_on_another_node(cluster: Spread) -> None:
    """By that node's own loopback, with the server's certificate verified."""
    host, mode, server, verified, insecure, *names = cluster["elsewhere"].splitlines()
    assert host == cluster.nodes[-1].machine.name
    assert mode == "600 alice"
    assert server.startswith("https://127.0.0.1:")
    assert (verified, insecure) == ("1", "0")
    assert sorted(names) == [f"node/{node.machine.name}" for node in cluster.nodes]


def test_no_pod_opens_a_device_that_its_job_was_not_given(cluster: Spread) -> None:
    """Though it sees it: a node of kind's shows all that there are."""
    assert "pod/device condition met" in cluster["refused"], cluster["device"]
    assert REFUSED in cluster["device"]
    assert not [name for name, node in cluster.objects("Node").items() if LABEL in node["metadata"]["labels"]]


def test_the_way_in_on_another_node_is_the_users_alone(cluster: Spread) -> None:
    """Who has no certificate is at least told so by the API; a stranger is hung up on before that."""
    (server,) = (line for line in cluster["elsewhere"].splitlines() if line.startswith("https://"))
    shell = cluster.nodes[-1].machine.shell
    ask = ["curl", "--silent", "--insecure", "--max-time", "60", "--output", "/dev/null", server]
    for user in (USER, "root"):
        shell.run(ask, user=user)
    shell.run(ask, user=STRANGER, ok=HUNG_UP)


def test_each_node_is_the_router_of_its_own_containers(cluster: Spread) -> None:
    for node, other in zip(cluster.nodes, reversed(cluster.nodes), strict=True):
        shell, address = node.machine.shell, f"10.77.0.{other.machine.number}"
        kubelet = next(seen.pid for seen in node.during if seen.name == "kubelet")
        with receiver(other.machine.shell, port=OUTSIDE) as outside:
            assert send(shell, [Message(address, OUTSIDE, b"out", kind="tcp")], network_of=kubelet) == [None]
            assert send(shell, [Message(address, OUTSIDE, LAST_WORD.encode())]) == [None]
            (heard,) = outside.received()
        low, high = JOBS_PORTS
        assert (heard.host, low <= heard.port <= high) == (f"10.77.0.{node.machine.number}", True), heard


def test_every_process_on_every_node_is_below_the_jobs_cgroup(cluster: Spread, figures: Figures) -> None:
    for node in cluster.nodes:
        print(node.machine.name, *places(node.during), sep="\n")
        names = {seen.name for seen in node.during}
        assert {"kubelet", "kube-proxy", "containerd", "httpd", "conmon"} <= names
        assert any(seen.uid in node.owner.subordinate for seen in node.during)
        assert cluster.outside(node) == set()
        inside = len(node.during - cluster.outside(node))
        what = f"of {len(node.during)} processes of the user on {node.slurms_name}, below the job's cgroup"
        figures.add(what, inside, "")


def test_nothing_of_the_job_listens_to_anybody_elsewhere(cluster: Spread) -> None:
    """By the kernel's own list, and by what answers another user on another node; srun listens in every job."""
    for node, other in zip(cluster.nodes, reversed(cluster.nodes), strict=True):
        ours = {one for one in node.opened if one.program != "srun"}
        exposed = {(one.kind, one.port, one.program) for one in ours if not one.local}
        assert exposed == {("udp", FABRIC, "")}
        ports = {one.port for one in ours if one.kind == "tcp"}
        assert ports, "somebody is to reach the API"
        address = f"10.77.0.{node.machine.number}"
        assert answering(other.machine.shell, STRANGER, address, {SSH, *ports}) == [SSH]
    assert int(cluster["port"]) in {one.port for one in cluster.nodes[0].opened if one.local}


def test_the_network_between_pods_of_two_nodes(lab: Cluster, cluster: Spread, figures: Figures) -> None:
    pods, guests = speed(cluster["speed"]), between_guests(lab)
    figures.add("iperf3 from guest to guest, by their own path", guests, "Mbit/s")
    figures.add("iperf3 from pod to pod over two nodes", pods, "Mbit/s")
    figures.add("pod to pod, of the guests' own path", pods / guests, "")


def test_with_the_script_everything_goes_on_every_node(lab: Cluster, cluster: Spread) -> None:
    let_go_on(cluster.job)
    cluster.job.wait_gone()
    lab.wait_idle()
    for node in cluster.nodes:
        left = settled(node.machine, node.before)[1]
        assert left == [], f"{node.machine.name} keeps {report(left)}"
    assert cluster.job.accounted("State,ExitCode") == ["COMPLETED", "0:0"]


def kibibytes(quantity: str) -> int:
    number, unit = quantity[:-2], quantity[-2:]
    return int(number) << {"Ki": 0, "Mi": 10, "Gi": 20}[unit]
