"""A job with one cluster over several nodes, and everything that a test can observe of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ..build.payload import CARRIED
from ..guest.cluster import Cluster
from ..guest.device import described
from ..guest.machine import Machine
from ..guest.user_session import user_session
from ..probes.job_limits import job_of
from ..probes.leftovers import Thing, make_ready, record
from ..probes.open_ports import Open, opened
from ..probes.processes import Owner, Seen, outside, owner, user_processes
from .batch import Job, submit
from .cluster_job import MOORED, START_LIMIT, put_manifests, ready
from .container_job import IMAGE
from .facts import SHELL, Fact, facts
from .pause import PAUSE, SAYS

USER = "alice"
STRANGER = "bob"
MANIFESTS = Path(__file__).resolve().parents[2] / "nodes/manifests"
# Each node has two processors; the memory is what a guest that is no control plane can give.
SHAPE = ("--ntasks-per-node=1", "--cpus-per-task=2", "--mem=3200M")
MEMORY = 3200
PODS = 20
# How the phase begins in which a node joins.
JOINS = "joining"
PORT = 18090
NODE_PORT = 30080
SECONDS = 5
FORWARDED = f"curl --silent --retry 300 --retry-connrefused --retry-delay 1 http://127.0.0.1:{PORT}/"
# Of the kubeconfig on another node: whose it is, where it leads, how that is verified, and that it does lead there.
LOOK = r"""
hostname; stat --format "%a %U" "$KUBECONFIG"; grep -o "https://[0-9.]*:[0-9]*" "$KUBECONFIG"
grep -c certificate-authority-data "$KUBECONFIG"; grep -c insecure "$KUBECONFIG"; kubectl get nodes --output name
"""
# Under emulation each kubectl takes seconds: they are few.
SCRIPT = rf"""
{SHELL}
fact started date +%s.%N
last=n$SLURM_JOB_NUM_NODES
everywhere() {{ srun --overlap --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 "$@"; }}
there() {{ srun --overlap --nodes=1 --ntasks=1 --nodelist="$last" "$@"; }}
fact first kubectl get nodes --no-headers
fact tasks everywhere sh -c 'echo "$SLURMD_NODENAME $(cat /proc/self/cgroup)"'
fact port sh -c 'echo "$K8S_PORT"'
fact load everywhere moorage load /srv/lab/shell.tar
fact apply sh -c "sed 's/@NODES@/$SLURM_JOB_NUM_NODES/; s/@LAST@/$last/' spread.yaml | kubectl apply --filename -"
fact elsewhere there sh -c '{LOOK}'
fact image podman load --quiet --input /srv/lab/shell.tar
fact web kubectl rollout status --timeout=1200s daemonset/web
fact crowd kubectl apply --filename crew.yaml --filename {CARRIED}/device.yaml
fact crew kubectl rollout status --timeout=1200s statefulset/crew
fact pair kubectl wait --for=condition=Ready --timeout=600s pod/near pod/far
fact refused kubectl wait --for='jsonpath={{.status.phase}}=Failed' --timeout=600s pod/device
fact device kubectl logs device
fact objects sh -c 'kubectl get --output json nodes,pods | jq --compact-output .'
fact log kubectl logs far
fact exec kubectl exec far -- cat /tmp/index.html
kubectl port-forward pod/far {PORT}:8080 >/dev/null &
fact forwarded {FORWARDED}
kill %1
fact nodeport podman run --rm --network moorage {IMAGE} \
    wget -q -T 60 -O - "http://10.89.$((SLURM_JOB_NUM_NODES - 1)).2:{NODE_PORT}/"
fact speed kubectl exec near -- iperf3 --client far --time {SECONDS} --json
{PAUSE}
"""


@dataclass
class Node:
    """One of the job's, looked at before the job and while its script pauses."""

    machine: Machine
    owner: Owner
    before: list[Thing]
    processes: set[Seen]
    ports: set[Open]
    during: set[Seen] = field(default_factory=set)
    # Open now, and not before.
    opened: set[Open] = field(default_factory=set)

    @classmethod
    def look(cls, machine: Machine) -> Node:
        who = owner(machine.shell, USER)
        return cls(machine, who, record(machine), user_processes(machine.shell, who), opened(machine.shell))

    def look_again(self) -> None:
        self.during = user_processes(self.machine.shell, self.owner) - self.processes
        self.opened = opened(self.machine.shell) - self.ports

    @property
    def slurms_name(self) -> str:
        return f"n{self.machine.number}"


@dataclass
class Spread:
    """The job while its script pauses."""

    job: Job
    nodes: list[Node]
    facts: dict[str, Fact] = field(init=False)

    def __post_init__(self) -> None:
        self.hear()

    def hear(self) -> None:
        """What the script has found out until now."""
        self.facts = facts(self.job.output)

    def __getitem__(self, name: str) -> str:
        """What is said there by a command that went well."""
        fact = self.facts[name]
        assert fact.code == 0, f"{name} ended with {fact.code}: {fact.text}"
        return fact.text

    @property
    def cgroups(self) -> dict[str, str]:
        """The job's on each node, by Slurm's name of that."""
        rows = (line.partition(" ") for line in self["tasks"].splitlines())
        return {name: job_of(cgroup) for name, _, cgroup in rows}

    def outside(self, node: Node) -> set[Seen]:
        return outside(node.during, self.cgroups[node.slurms_name])

    def objects(self, kind: str) -> dict[str, dict[str, Any]]:
        """By their names."""
        items = json.loads(self["objects"])["items"]
        return {item["metadata"]["name"]: item for item in items if item["kind"] == kind}

    def where(self, app: str) -> dict[str, int]:
        """How many pods each node has of it, by the nodes' names in order."""
        pods = self.objects("Pod").values()
        nodes = [pod["spec"]["nodeName"] for pod in pods if pod["metadata"].get("labels", {}).get("app") == app]
        return {name: nodes.count(name) for name in sorted({*nodes})}

    @property
    def joins(self) -> dict[str, tuple[float, float]]:
        """When each of the further nodes began to join, and when the API knew it: seconds of the job's own start."""
        output = self.job.output
        # The script's first line, by the clock of the node with the API.
        offset = ready(output) - float(self["started"])
        begun = joining(output)
        known = {one["metadata"]["labels"]["moorage/node"]: created(one) for one in self.objects("Node").values()}
        return {name: (begun[name], known[name] + offset) for name in begun}


@contextmanager
def spread(lab: Cluster, *options: str, script: str = SCRIPT) -> Iterator[Spread]:
    """Over all guests of the lab; the job is cancelled where the block has not brought it to its end."""
    shell, number = lab.first.shell, len(lab.machines)
    with ExitStack() as stack:
        for machine in lab.machines:
            make_ready(machine)
            stack.enter_context(described(machine.shell))
            for user in (USER, STRANGER):
                stack.enter_context(user_session(machine.shell, user))
        place = put_manifests(shell, MANIFESTS, USER)
        lab.wait_idle()
        nodes = [Node.look(machine) for machine in lab.machines]
        job = submit(shell, script, MOORED, f"--nodes={number}", *SHAPE, f"--chdir={place}", *options, user=USER)
        try:
            job.wait_said(SAYS, START_LIMIT)
            for node in nodes:
                node.look_again()
            yield Spread(job, nodes)
        finally:
            job.cancel("--quiet")
            job.wait_gone()


def speed(said: str) -> float:
    """The rate at which data arrived, in Mbit/s, out of the JSON of an iperf3 client."""
    report = json.loads(said)
    if "error" in report:
        raise ValueError(report["error"])
    return float(report["end"]["sum_received"]["bits_per_second"]) / 1e6


def between_guests(lab: Cluster) -> float:
    """The same from the first guest to the last, without any job's network between them."""
    last = lab.machines[-1]
    # It is there before its start returns.
    last.shell.run(["iperf3", "--server", "--one-off", "--daemon"])
    said = lab.first.shell.output(
        "iperf3", "--client", f"10.77.0.{last.number}", "--time", str(SECONDS), "--json", limit=SECONDS + 120
    )
    return speed(said)


_STAMP = re.compile(r"moorage: +([0-9]+\.[0-9]) s  (\w+): (.+)")


def stamps(output: str) -> dict[str, list[tuple[float, str]]]:
    """The progress lines of each node of a job, with their seconds."""
    found: dict[str, list[tuple[float, str]]] = {}
    for match in filter(None, map(_STAMP.fullmatch, output.splitlines())):
        found.setdefault(match[2], []).append((float(match[1]), match[3]))
    return found


def joining(output: str) -> dict[str, float]:
    """When each node told that it joins, for the first time."""
    found: dict[str, float] = {}
    for node, told in stamps(output).items():
        for moment, _ in (line for line in told if line[1].startswith(JOINS)):
            found.setdefault(node, moment)
    return found


def created(thing: dict[str, Any]) -> float:
    """By the clock of the API's node."""
    return datetime.fromisoformat(thing["metadata"]["creationTimestamp"]).timestamp()
