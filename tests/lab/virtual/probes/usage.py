"""CPU time and memory of a job, by three sources: Slurm, the job's warden, and the job's last line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from ..guest.shell import Shell
from ..jobs.batch import Job

_UNITS = {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}
_LAST_LINE = r"used ([0-9.:]+)(?: s)? of CPU time, at most ([0-9.]+) (KiB|MiB|GiB) of memory"


@dataclass(frozen=True)
class Used:
    """CPU time in seconds, memory in MiB."""

    seconds: float
    memory: float


def agents_seconds(shell: Shell, job: str) -> float:
    """The CPU time of the agents themselves until now, without their job's containers; `job` is the job's cgroup."""
    tasks = f"/sys/fs/cgroup{job}/step_0/user"
    files = [f"{tasks}/{place}/cpu.stat" for place in ("task_0", "task_1", "task_1/k8s")]
    rows = shell.output("grep", "--no-filename", "^usage_usec", *files).splitlines()
    first, second, tree = (int(row.split()[1]) / 1e6 for row in rows)
    return first + second - tree


def by_slurm(job: Job, step: str) -> Used:
    seconds, memory = job.accounted("TotalCPU,MaxRSS", step=step)
    assert memory.endswith("K"), memory
    return Used(_seconds(seconds), int(memory[:-1]) / 1024)


def by_warden(job: Job) -> Used:
    """In the journal of the node, once in the life of a job."""
    wanted = ["SYSLOG_IDENTIFIER=moorage", "PHASE=end", f"JOB_ID={job.id}"]
    rows = job.shell.output("journalctl", "--output=json", *wanted).splitlines()
    (entry,) = [entry for entry in map(json.loads, rows) if "CPU_SECONDS" in entry]
    return Used(float(entry["CPU_SECONDS"]), int(entry["MEMORY_PEAK"]) / (1 << 20))


def by_last_line(job: Job) -> Used:
    found = re.search(_LAST_LINE, job.output.splitlines()[-1])
    assert found, job.output
    seconds, memory, unit = found.groups()
    return Used(_seconds(seconds), float(memory) * _UNITS[unit])


def _seconds(text: str) -> float:
    """4.2, 03:05, 1-12:00:07.250"""
    days, _, clock = text.rpartition("-")
    total = 0.0
    for part in clock.split(":"):
        total = total * 60 + float(part)
    return int(days or 0) * 86400 + total
