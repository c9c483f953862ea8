"""Limits by the files of cgroups: a job's share of a node, and the part that a process in the job may use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from ..guest.shell import Shell
from .processes import Seen

ROOT = PurePosixPath("/sys/fs/cgroup")
MIB = 1 << 20


@dataclass(frozen=True)
class Share:
    """`memory` is the least that any cgroup from there upwards allows, in MiB; None if none has a limit."""

    cpus: str
    memory: int | None
    controllers: frozenset[str]


def share(shell: Shell, cgroup: str) -> Share:
    here = ROOT / cgroup.strip("/")
    upwards = [place for place in (here, *here.parents) if place.is_relative_to(ROOT)]
    limits = [str(place / name) for place in upwards for name in ("memory.max", "memory.high")]
    said = settings(shell, str(here / "cpuset.cpus.effective"), str(here / "cgroup.controllers"), *limits)
    known = [int(said[limit]) for limit in limits if said.get(limit, "max") != "max"]
    return Share(
        said[str(here / "cpuset.cpus.effective")],
        min(known) // MIB if known else None,
        frozenset(said[str(here / "cgroup.controllers")].split()),
    )


def settings(shell: Shell, *files: str) -> dict[str, str]:
    """The content of each file that exists."""
    rows = shell.run(["grep", "--no-messages", "--with-filename", "", *files], ok=(0, 2)).stdout.splitlines()
    return {place: value for place, _, value in (row.partition(":") for row in rows)}


def own_settings(shell: Shell, process: Seen, *names: str) -> dict[str, str]:
    """The settings of the very cgroup that a process is in."""
    place = ROOT / process.cgroup.strip("/")
    said = settings(shell, *(str(place / name) for name in names))
    return {PurePosixPath(file).name: value for file, value in said.items()}


def job_of(task: str) -> str:
    """The cgroup of the job, out of a line of /proc/PID/cgroup of one of its tasks."""
    return task.rpartition("::")[2].rpartition("/step_")[0]


def count(cpus: str) -> int:
    """How many there are in a list like 0-3,6."""
    ranges = (part.split("-") for part in cpus.split(","))
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)
