"""Jobs with a container on one node, and the roles of their processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from moorage.common.errors import MoorageError

from ..guest.shell import Shell
from .batch import LIMIT, MOORED, Job, submit

IMAGE = "localhost/lab/shell:1"
HOLDER = "-m moorage.user.network.holder"
RUN = f"podman run --rm --network=none {IMAGE}"
SMALL = ("--cpus-per-task=1", "--mem=512M", "--time=30", "--nodelist=n1")
# For any job's script: `told WORD` waits until the test says WORD, `said TEXT` until the job's output does.
HEARS = """
told() { until [ -e ~/told-$SLURM_JOB_ID-$1 ]; do sleep 0.3; done; }
said() { until grep -q -- "$1" ~/job-$SLURM_JOB_ID.out; do sleep 0.3; done; }
"""
# What every such job does first.
PRELUDE = f"""{HEARS}
cd /
podman load --quiet --input /srv/lab/shell.tar
podman run --detach --name=hand {IMAGE} sleep 3600
sleep 3600 &
echo "containers run: ${{SLURM_RESTART_COUNT:-0}}"
"""


def container_job(shell: Shell, then: str, *options: str) -> Job:
    """A job of alice's, on the first node unless told otherwise.

    It has a container and a process of its own left running when it comes to do `then`.
    """
    return submit(shell, PRELUDE + then, MOORED, *SMALL, *options)


def tell(job: Job, word: str) -> None:
    job.shell.run(["touch", f"/home/{job.user}/told-{job.id}-{word}"], user=job.user)


@dataclass(frozen=True)
class Seen:
    pid: int
    parent: int
    name: str
    argv: str


class Roles:
    """The roles of the processes of a job on the first node, by the processes there and by root's record of the job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.shell = job.shell
        self.seen = {one.pid: one for one in _processes(self.shell)}
        self.known = json.loads(self.shell.output("cat", f"/var/lib/moorage/jobs/{job.id}.json"))

    @property
    def tree(self) -> str:
        return str(self.known["tree"])

    def pid(self, role: str) -> int:
        match role:
            case "agent":
                return int(self.known["agent"]["pid"])
            case "placeholder":
                return int(self.known["lender"]["pid"])
            case "warden":
                return int(self.known["owner"]["pid"])
            case "keeper":
                return self._only(role, (one for one in self.seen.values() if one.parent == self.pid("agent")))
            case "moorage run":
                return self.seen[self.pid("srun")].parent
            case "srun":
                # It has a child of the same name.
                return self._only(
                    role, (one for one in self._of("srun", f"--jobid={self.job.id} ") if self._leads(one))
                )
            case "holder":
                # Podman runs it, and has its words among its own.
                there = (one for one in self.seen.values() if one.argv.endswith(HOLDER) and one.name != "podman")
                return self._only(role, (one for one in there if self._is_below(one, self.pid("keeper"))))
            case "conmon":
                # A container's own: each command that is run in one has another.
                return self._only(role, self._of("conmon", f" --conmon-pidfile /run/moorage/{self.job.id}/"))
            case "podman":
                return self._only(role, (one for one in self._of("podman", " wait ") if "/run/" not in one.argv))
        raise ValueError(role)

    def kill(self, role: str) -> None:
        self.shell.run(["kill", "-KILL", str(self.pid(role))])

    def _of(self, name: str, argument: str) -> Iterator[Seen]:
        return (one for one in self.seen.values() if one.name == name and argument in one.argv)

    def _is_below(self, one: Seen, ancestor: int) -> bool:
        return one.parent == ancestor or (one.parent in self.seen and self._is_below(self.seen[one.parent], ancestor))

    def _leads(self, one: Seen) -> bool:
        return one.parent not in self.seen or self.seen[one.parent].name != one.name

    def _only(self, role: str, found: Iterator[Seen]) -> int:
        every = [*found]
        if len(every) != 1:
            raise MoorageError(f"job {self.job.id} has {len(every)} processes that could be its {role}: {every}")
        return every[0].pid


def _processes(shell: Shell) -> Iterator[Seen]:
    for line in shell.output("ps", "-eww", "-o", "pid=,ppid=,comm=,args=").splitlines():
        pid, parent, name, argv = line.split(maxsplit=3)
        yield Seen(int(pid), int(parent), name, argv)


def wait_until(condition: Callable[[], bool], otherwise: str, limit: float = LIMIT) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise MoorageError(f"{otherwise} after {limit:.0f} s")
        time.sleep(0.3)
