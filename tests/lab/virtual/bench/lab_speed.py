"""What the lab is worth on this machine: a boot, a cluster's start, and Python's speed in a guest."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ..build.progress import phase
from ..build.tools import tools
from ..guest import cluster
from ..guest.record import Request
from ..guest.shell import Shell
from ..jobs import cluster_job
from ..jobs.pause import PAUSE, SAYS, let_go_on

# The same program on both sides: neither its start nor a system call is counted.
LOOP = """
import time
began = time.perf_counter()
for number in range(10_000_000):
    pass
print(time.perf_counter() - began)
"""
PYTHON = "/usr/bin/python3"
ROUNDS = 3
PYTHON_LIMIT = 600.0


@dataclass(frozen=True)
class Bench:
    """`python` is how many times as long as on the host the loop takes in a guest; seconds, the others."""

    acceleration: str
    boot: float
    ready: float
    python: float

    def __str__(self) -> str:
        figures = f"boot={self.boot:.1f} ready={self.ready:.1f} python={self.python:.1f}"
        return f"lab: acceleration={self.acceleration} {figures}"


def measure(directory: Path, request: Request) -> Bench:
    lab = cluster.prepare(directory, request)
    try:
        began = time.monotonic()
        lab.boot(with_parent=True)
        boot = time.monotonic() - began
        shell = lab.first.shell
        with phase("a loop of Python, in the guest and here"):
            python = _in_guest(shell) / _here()
        with phase("a job's cluster"):
            ready = _ready(shell)
        return Bench(lab.hardware.acceleration.name, boot, ready, python)
    finally:
        lab.stop()


def _in_guest(shell: Shell) -> float:
    return min(float(shell.output(PYTHON, "-c", LOOP, limit=PYTHON_LIMIT)) for _ in range(ROUNDS))


def _here() -> float:
    """With the Python of the tools tree, which is the guest's."""
    return min(float(tools().run([PYTHON, "-c", LOOP], limit=PYTHON_LIMIT).stdout) for _ in range(ROUNDS))


def _ready(shell: Shell) -> float:
    """From the submission of a job with a cluster to its script's first line."""
    began = time.monotonic()
    job = cluster_job.cluster_job(shell, PAUSE)
    try:
        job.wait_said(SAYS, cluster_job.START_LIMIT)
        took = time.monotonic() - began
        print("\n".join(cluster_job.table(job.output)))
        let_go_on(job)
        job.wait_gone()
        return took
    finally:
        job.cancel("--quiet")
