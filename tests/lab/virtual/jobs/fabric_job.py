"""Jobs without Kubernetes over several nodes: one container on each node, all on one fabric."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..guest.cluster import Cluster
from ..guest.shell import Shell
from ..probes.fabric import PORT, Fabric, Message, fabric, send
from .batch import Job, submit
from .container_job import IMAGE
from .facts import SHELL, Fact, facts
from .pause import PAUSE, SAYS, let_go_on

# The same for all: two such jobs find room on a guest, beside each other.
SHAPE = ("--ntasks-per-node=1", "--cpus-per-task=1", "--mem=700M", "--time=30")
MOORED = "--k8s=cluster=none"
# Of each node's container, by the node's place in the job.
ADDRESS = "10.89.{}.9"
# `everywhere LINES` runs these in bash on each node of the job; `on NODE COMMAND...` a command on one of them.
# `eventually COMMAND...` tries until it succeeds, for as long as a network may take to come up under emulation.
# `told WORD` waits until the test says WORD, `said TEXT` until the job's output does.
PRELUDE = rf"""
everywhere() {{ srun --overlap --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 bash -euc "$1"; }}
on() {{ srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" "${{@:2}}"; }}
eventually() {{ for _ in {{1..40}}; do "$@" 2>/dev/null && return; sleep 0.5; done; "$@"; }}
ask() {{ eventually podman exec hand wget -q -T 10 -O - "http://$1:8080/"; }}
told() {{ until [ -e ~/told-$SLURM_JOB_ID-$1 ]; do sleep 0.3; done; }}
said() {{ until grep -q -- "$1" ~/job-$SLURM_JOB_ID.out; do sleep 0.3; done; }}
export -f eventually ask
cd /
everywhere '
    podman load --quiet --input /srv/lab/shell.tar
    podman run --quiet --detach --name hand --network moorage --ip 10.89.$SLURM_NODEID.9 {IMAGE} \
        sh -c "echo hand of $SLURM_JOB_ID on $SLURMD_NODENAME >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"
' || exit 9
sleep 3600 &
echo "containers run: ${{SLURM_RESTART_COUNT:-0}}"
"""


def fabric_job(shell: Shell, then: str, *options: str, nodes: int = 2, user: str = "alice") -> Job:
    """A job on the first nodes of the lab, which comes to do `then` when all its containers are there."""
    where = [f"--nodes={nodes}", "--nodelist=" + ",".join(f"n{number + 1}" for number in range(nodes))]
    return submit(shell, PRELUDE + then, MOORED, *SHAPE, *where, *options, user=user)


LONE = "10.89.1.19"
PID = "podman inspect --format '{{.State.Pid}}'"
# A second container on the second node, at an address that no other job of the tests has.
VICTIM = rf"""
{SHELL}
on n2 podman run --quiet --detach --name lone --network moorage --ip {LONE} {IMAGE} \
    sh -c 'echo lone >/tmp/index.html; exec httpd -f -p 8080 -h /tmp'
fact there ask {ADDRESS.format(1)}
fact lone ask {LONE}
fact back on n2 bash -c 'ask {ADDRESS.format(0)}'
fact near {PID} hand
fact far on n2 {PID} hand
{PAUSE}
"""


@dataclass(frozen=True)
class Victim:
    """Alice's job over both nodes at its pause: others try to send into its fabric."""

    lab: Cluster
    job: Job
    facts: dict[str, Fact]

    @property
    def near(self) -> int:
        """The container on the first node, by its process there."""
        return int(self.facts["near"].lines[-1])

    @property
    def far(self) -> int:
        """That on the second."""
        return int(self.facts["far"].lines[-1])

    @property
    def fabric(self) -> Fabric:
        return fabric(self.lab.first.shell, self.job.id)

    @property
    def second(self) -> Shell:
        return self.lab.machines[1].shell

    def say(self, text: str, times: int = 1) -> None:
        """From the container on the first node to the one on the second."""
        words = Message(ADDRESS.format(1), PORT, text.encode(), times=times, pause=0.5)
        assert send(self.lab.first.shell, [words], network_of=self.near) == [None]


@contextmanager
def waiting(lab: Cluster) -> Iterator[Victim]:
    job = fabric_job(lab.first.shell, VICTIM)
    try:
        job.wait_said(SAYS)
        yield Victim(lab, job, facts(job.output))
        let_go_on(job)
        job.wait_gone()
    finally:
        job.cancel("--quiet")
