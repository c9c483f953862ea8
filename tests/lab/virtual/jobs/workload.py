"""A job that uses its cluster in all usual ways, and everything that a test can observe of it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..build.payload import CARRIED
from ..guest.device import GRES, described
from ..guest.machine import Machine
from ..guest.shell import Shell
from ..guest.user_session import user_session
from ..probes.cluster_overhead import LOOK
from ..probes.idle import ENDS
from ..probes.job_limits import job_of
from ..probes.leftovers import Thing, make_ready, record
from ..probes.name_lookups import Lookup, lookups, lookups_logged, mark
from ..probes.processes import Owner, Seen, outside, owner, user_processes
from .batch import Job
from .cluster_job import START_LIMIT, cluster_job
from .facts import SHELL, Fact, facts
from .pause import PAUSE, SAYS

USER = "alice"
STRANGER = "bob"
PORT = 18080
FORWARDED = f"curl --silent --retry 300 --retry-connrefused --retry-delay 1 http://127.0.0.1:{PORT}/"
# Names that nobody has, by which is found what was asked for in between.
SUBMITTED, BEGUN = "submitted.lab", "begun.lab"
# The first fact is a look at the cluster. Under emulation each kubectl takes seconds: they are few.
SCRIPT = rf"""
getent hosts {BEGUN}
{SHELL}
fact first kubectl get nodes --no-headers
node=$K8S_CLUSTER_NAME-control-plane
fact rest podman exec "$node" sh -euc {shlex.quote(LOOK)}
fact keys podman exec "$node" grep -r --include='*.key' -e '^-----BEGIN' /etc/kubernetes/pki
fact etcd podman exec "$node" stat --file-system --format=%T /run/etcd/member
fact own kubectl get --namespace kube-system --output json pods
fact task cat /proc/self/cgroup
fact environment sh -c 'env | grep -E "^(K8S_|KUBECONFIG=)"'
fact place moorage kubeconfig
fact shown sh -c 'moorage kubeconfig --show | cmp - "$KUBECONFIG"'
fact mode stat --format '%a %U' "$KUBECONFIG"
fact kubectl sh -c 'command -v kubectl'
fact versions kubectl version --output json
fact load moorage load {CARRIED}/web.tar
fact apply kubectl apply --filename {CARRIED}/checks.yaml --filename {CARRIED}/device.yaml --filename more.yaml
fact established kubectl wait --for=condition=Established --timeout=600s crd/berths.lab.example
fact berth kubectl apply --filename berth.yaml
fact complete kubectl wait --for=condition=complete --timeout=1200s job/asker job/writer
fact available kubectl wait --for=condition=available --timeout=1200s deployment/web deployment/loaded
fact exec kubectl exec deployment/web -- cat /tmp/index.html
kubectl port-forward service/web {PORT}:80 >/dev/null &
fact forwarded {FORWARDED}
kill %1
fact opened kubectl wait --for='jsonpath={{.status.phase}}=Succeeded' --timeout=600s pod/device
fact device kubectl logs pod/device
fact asker kubectl logs job/asker
fact writer kubectl logs job/writer
fact objects kubectl get --output json nodes,pods,persistentvolumeclaims,networkpolicies,berths
fact secrets kubectl get --all-namespaces --output name secrets
fact tokens podman exec "$node" grep token: /kind/kubeadm.conf
fact view podman unshare touch "/run/moorage/$SLURM_JOB_ID/images/overlay/planted"
{PAUSE}
fact greedy kubectl apply --filename greedy.yaml
fact killed kubectl wait --for='jsonpath={{.status.phase}}=Failed' --timeout=1200s pod/over-own pod/over-job
fact after kubectl get --output json pods
{ENDS}
"""


@dataclass
class Running:
    """The job while its script pauses; `before` lists the contents of the node before the job."""

    job: Job
    machine: Machine
    owner: Owner
    before: list[Thing]
    during: set[Seen]
    facts: dict[str, Fact] = field(init=False)

    def __post_init__(self) -> None:
        self.hear()

    def hear(self) -> None:
        """What the script has found out until now."""
        self.facts = facts(self.job.output)

    @property
    def shell(self) -> Shell:
        return self.job.shell

    def __getitem__(self, name: str) -> str:
        """What is said there by a command that went well."""
        fact = self.facts[name]
        assert fact.code == 0, f"{name} ended with {fact.code}: {fact.text}"
        return fact.text

    @property
    def cgroup(self) -> str:
        return job_of(self["task"])

    @property
    def outside(self) -> set[Seen]:
        return outside(self.during, self.cgroup)

    @property
    def run(self) -> str:
        return f"/run/moorage/{self.job.id}"

    @property
    def server(self) -> str:
        return self.environment["K8S_CLUSTER_API"]

    @property
    def environment(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self["environment"].splitlines())

    @property
    def lookups(self) -> list[Lookup]:
        """For which names, from its submission until its script began."""
        return lookups(self.shell, SUBMITTED, BEGUN)

    def objects(self, kind: str, fact: str = "objects") -> dict[str, dict[str, Any]]:
        """By their names."""
        items = json.loads(self[fact])["items"]
        return {item["metadata"]["name"]: item for item in items if item["kind"] == kind}


@contextmanager
def running(machine: Machine) -> Iterator[Running]:
    """The job is cancelled where the block has not brought it to its end."""
    shell = machine.shell
    who = owner(shell, USER)
    make_ready(machine)
    # Who has been here once has keyrings, which stay.
    shell.run(["true"], user=STRANGER)
    with user_session(shell, USER), described(shell), lookups_logged(shell):
        before, processes = record(machine), user_processes(shell, who)
        mark(shell, SUBMITTED)
        job = cluster_job(shell, SCRIPT, GRES)
        try:
            job.wait_said(SAYS, START_LIMIT)
            yield Running(job, machine, who, before, user_processes(shell, who) - processes)
        finally:
            job.cancel("--quiet")
            job.wait_gone()
