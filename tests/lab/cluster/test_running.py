"""One cluster in its job: what works in it, where it is, who gets at it, and what becomes of it at the end.

One after the other: the last test ends the job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.figures import Figures
from virtual.build import binaries
from virtual.guest.cluster import Cluster
from virtual.guest.device import LABEL, OPENED
from virtual.guest.shell import Shell
from virtual.jobs import cluster_job
from virtual.jobs.batch import submit
from virtual.jobs.pause import let_go_on
from virtual.jobs.workload import STRANGER, Running, running
from virtual.probes.access import places, successes
from virtual.probes.api_access import WELL_KNOWN, Call, answers, signing_request
from virtual.probes.cluster_overhead import asked_for, at_rest
from virtual.probes.idle import ENDS, busy
from virtual.probes.job_limits import MIB, count, share
from virtual.probes.leftovers import report, settled
from virtual.probes.processes import places as whereabouts

COMPONENTS = {"containerd", "coredns", "etcd", "kube-apiserver", "kube-controller", "kube-proxy", "kube-scheduler"}
# What the job's containers, and of that the pods, are not given of its memory, in MiB.
RESERVE = 512
RESERVES = 128 + RESERVE
# Of what the smallest job has for pods, so much is to be left for its user's.
LEAST, LEFT = 3072, 1024
LEAST_CPUS, LEFT_CPUS = 1.9, 1.0
TOKEN = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")
CHANGES = {"write", "create", "give_away", "connect"}
HEALTH = "/livez"
CLOSED = ("/api", "/apis", "/version", "/openapi/v3", "/api/v1/namespaces/kube-public/configmaps/cluster-info")
IDLE_AT_MOST = 15.0
KILLED = 137
# The kernel's words: whose limit it was, and in which cgroup the process was that it killed.
OUT_OF_MEMORY = re.compile(r"oom-kill:.*,oom_memcg=([^,]*),task_memcg=([^,]*),")
POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


@pytest.fixture(scope="module")
def cluster(alone: Cluster) -> Iterator[Running]:
    with running(alone.first) as found:
        yield found


def test_the_first_line_of_the_script_sees_a_ready_node(cluster: Running, figures: Figures) -> None:
    name, state, *_ = cluster["first"].split()
    assert (name, state) == (cluster.machine.name, "Ready")
    print("\n".join(cluster_job.table(cluster.job.output)))
    figures.add("start-up of a job with a cluster, as its output has it", cluster_job.ready(cluster.job.output), "s")


def test_the_script_is_told_where_its_cluster_is(cluster: Running) -> None:
    name = f"moorage-{cluster.job.id}"
    kubeconfig = f"{cluster.run}/user/kubeconfig"
    port = cluster.server.rpartition(":")[2]
    assert cluster.environment == {
        "KUBECONFIG": kubeconfig,
        "K8S_CLUSTER_NAME": name,
        "K8S_CLUSTER_API": f"https://127.0.0.1:{port}",
        "K8S_PORT": port,
    }
    assert cluster["mode"] == "600 alice"
    assert cluster["place"] == kubeconfig
    assert cluster["shown"] == ""


def test_until_the_script_begins_nobody_asks_for_a_name_outside(cluster: Running) -> None:
    """Nor does anybody pull, which begins with a name; but CoreDNS looks once whether it would ask itself."""
    found = {one for one in cluster.lookups if one.outside}
    assert [one.kind for one in found] in ([], ["HINFO"]), found


def test_kubectl_is_the_clusters_own(cluster: Running) -> None:
    assert cluster["kubectl"].startswith(f"{cluster.run}/")
    versions = json.loads(cluster["versions"])
    assert versions["clientVersion"]["gitVersion"] == versions["serverVersion"]["gitVersion"] == binaries.VERSION


def test_a_deployment_answers_by_the_name_of_its_service(cluster: Running) -> None:
    assert "job.batch/asker condition met" in cluster["complete"]
    # It has asked until it was answered.
    assert cluster["asker"].splitlines()[-1] == "web answers"


def test_a_claim_is_bound_and_the_log_of_a_job_is_there(cluster: Running) -> None:
    (claim,) = cluster.objects("PersistentVolumeClaim").values()
    assert claim["status"]["phase"] == "Bound"
    assert cluster["writer"] == "volume holds this"


def test_exec_and_port_forward(cluster: Running) -> None:
    assert cluster["exec"] == "web answers"
    assert cluster["forwarded"] == "web answers"


def test_an_object_of_a_kind_of_ones_own_and_a_network_policy_are_kept(cluster: Running) -> None:
    """What a policy then does is a matter of the pod network, and the lab's does nothing."""
    assert cluster.objects("Berth")["first"]["length"] == 42
    assert [*cluster.objects("NetworkPolicy")] == ["quay"]


def test_an_image_that_was_loaded_can_be_started(cluster: Running) -> None:
    assert cluster["load"]
    assert "deployment.apps/loaded condition met" in cluster["available"]


def test_keys_are_elliptic_and_etcd_is_in_memory(cluster: Running) -> None:
    """Both make the start shorter."""
    keys = dict(line.rsplit(":", 1) for line in cluster["keys"].splitlines())
    names = {place.removeprefix("/etc/kubernetes/pki/") for place in keys}
    assert {"ca.key", "sa.key", "apiserver.key", "etcd/ca.key", "etcd/server.key"} <= names
    assert {*keys.values()} == {"-----BEGIN EC PRIVATE KEY-----"}, keys
    assert cluster["etcd"] == "tmpfs"


def test_pods_are_offered_the_share_of_the_job(cluster: Running) -> None:
    (node,) = cluster.objects("Node").values()
    offered = node["status"]["allocatable"]
    of_job = share(cluster.shell, cluster.cgroup)
    assert of_job.memory == 4096
    assert size(offered["memory"]) == (of_job.memory - RESERVES) * MIB
    assert offered["cpu"] == f"{count(of_job.cpus) * 1000 - 100}m"


def test_a_pod_opens_the_device_that_its_job_was_given(cluster: Running) -> None:
    assert "pod/device condition met" in cluster["opened"], cluster["device"]
    assert OPENED in cluster["device"]
    (node,) = cluster.objects("Node").values()
    assert node["metadata"]["labels"][LABEL] == "1"


def test_what_a_cluster_takes_at_rest_is_what_is_kept_for_it(lab: Cluster, cluster: Running, figures: Figures) -> None:
    rest, suite = at_rest(cluster["rest"]), lab.request.suite
    own = asked_for(cluster.objects("Pod", "own").values())
    for what, measured, unit, bound in (
        ("memory of kubelet, containerd and systemd", rest.others / MIB, "MiB", RESERVE),
        ("memory of the cluster's own pods", rest.pods / MIB, "MiB", LEAST - RESERVES - LEFT),
        ("CPU that these ask for", own / 1000, "CPUs", LEAST_CPUS - LEFT_CPUS),
    ):
        figures.add(f"{what}, at rest ({suite})", measured, unit, at_most=bound)


def test_every_process_is_below_the_jobs_cgroup(cluster: Running, figures: Figures) -> None:
    print("\n".join(whereabouts(cluster.during)))
    names = {seen.name for seen in cluster.during}
    assert {name[:15] for name in COMPONENTS | {"kubelet", "httpd", "conmon", "slurm_script"}} <= names
    assert any(seen.uid in cluster.owner.subordinate for seen in cluster.during)
    assert cluster.outside == set()
    inside = len(cluster.during - cluster.outside)
    figures.add(f"of {len(cluster.during)} processes of the user with a cluster, below the job's cgroup", inside, "")


def test_the_limits_of_the_job_are_above_every_pod(cluster: Running) -> None:
    pods = [seen for seen in cluster.during if seen.name == "httpd"]
    of_job = share(cluster.shell, cluster.cgroup)
    assert pods
    for pod in pods:
        of_pod = share(cluster.shell, pod.cgroup)
        assert of_pod.memory is not None
        assert of_job.memory is not None
        assert of_pod.memory < of_job.memory
        assert of_pod.cpus == of_job.cpus
        assert {"cpu", "cpuset", "memory", "pids"} <= of_pod.controllers


def test_no_token_lets_anybody_in(cluster: Running) -> None:
    """Neither the one that is the same in all clusters of kind's, nor the job's own, nor none at all."""
    shell, server = cluster.shell, cluster.server
    tokens = {*TOKEN.findall(cluster["tokens"])}
    assert tokens
    assert WELL_KNOWN not in tokens
    assert "bootstrap-token" not in cluster["secrets"]
    with_these = ["", WELL_KNOWN, *tokens]
    reads = [Call(server + path, token=token) for path in CLOSED for token in with_these]
    signed = [signing_request(server, f"stranger-{number}", token) for number, token in enumerate(with_these)]
    for user in (STRANGER, "alice"):
        health, *others = answers(shell, [Call(server + HEALTH), *reads, *signed], user)
        assert health == 200
        assert others == [401] * len(others), user
    # What refuses them all does not refuse whom it belongs to.
    hers = Call(f"{server}/version", kubeconfig=cluster.environment["KUBECONFIG"])
    assert answers(shell, [hers], "alice") == [200]


def test_nobody_else_gets_at_the_kubeconfig(cluster: Running) -> None:
    found = places(cluster.shell, f"{cluster.run}/user", f"{cluster.run}/scratch", deepest=2)
    assert cluster.environment["KUBECONFIG"] in found
    assert successes(cluster.shell, STRANGER, found) == {}


def test_nobody_changes_the_images_of_the_node(cluster: Running) -> None:
    """Their owner in the job's namespace neither."""
    found = places(cluster.shell, f"{cluster.run}/images", deepest=2)
    assert any(place.endswith("/overlay-images/images.json") for place in found)
    assert successes(cluster.shell, STRANGER, found) == {}
    hers = successes(cluster.shell, "alice", found)
    assert "read" in hers[f"{cluster.run}/images/overlay-images/images.json"]
    assert {place: ways for place, ways in hers.items() if ways & CHANGES} == {}
    assert cluster.facts["view"].code != 0
    assert "Read-only file system" in cluster.facts["view"].text


def test_greedy_pods_are_killed_and_with_the_script_everything_goes(
    lab: Cluster, cluster: Running, figures: Figures
) -> None:
    let_go_on(cluster.job)
    moored_took = busy(cluster.shell, cluster.job, cluster_job.START_LIMIT)
    cluster.job.wait_gone()
    left = settled(cluster.machine, cluster.before)[1]
    assert left == [], report(left)
    cluster.hear()
    assert "pod/over-job condition met" in cluster["killed"]
    pods = cluster.objects("Pod", "after")
    limits = limits_hit(cluster.shell)
    for name, whose in (("over-own", "pod"), ("over-job", "job")):
        # The kubelet's own reason is not certain: the word that memory ran out may come after that of the end.
        assert ended(pods[name])[0] == KILLED
        assert limits[pods[name]["metadata"]["uid"]] == whose
    others = [pod for name, pod in pods.items() if name.startswith(("web-", "loaded-"))]
    assert [restarts(pod) for pod in others] == [0, 0]
    assert cluster.job.accounted("State,ExitCode") == ["COMPLETED", "0:0"]
    plain_took = busy(cluster.shell, submit(cluster.shell, ENDS, "--nodelist=n1", "--mem=100M"))
    what = f"end of the script of a job with a cluster to an idle node, beyond a plain job's {plain_took:.1f} s"
    figures.add(f"{what} ({lab.request.suite})", moored_took - plain_took, "s", at_most=IDLE_AT_MOST)


def size(quantity: str) -> int:
    """In bytes, as Kubernetes writes it."""
    return int(quantity[:-2]) << {"Ki": 10, "Mi": 20, "Gi": 30}[quantity[-2:]]


def limits_hit(shell: Shell) -> dict[str, str]:
    """By pods of which the kernel has killed a process: whether it was at the pod's own limit, or at one above it."""
    told = [(at, POD.search(killed)) for at, killed in OUT_OF_MEMORY.findall(shell.output("dmesg"))]
    return {pod[1].replace("_", "-"): "pod" if POD.search(at) else "job" for at, pod in told if pod}


def ended(pod: dict[str, Any]) -> tuple[int, str]:
    (status,) = pod["status"]["containerStatuses"]
    end = status["state"]["terminated"]
    return end["exitCode"], end["reason"]


def restarts(pod: dict[str, Any]) -> int:
    (status,) = pod["status"]["containerStatuses"]
    return int(status["restartCount"])
