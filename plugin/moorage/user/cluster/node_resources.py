"""The job's part of its node's resources, what kubelet has to reserve, and the labels that tell of it."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.common.errors import UserError

MIB: Final = 1 << 20
GIB: Final = 1 << 30
ROOT: Final = Path("/sys/fs/cgroup")
# In thousandths of a CPU: kubelet and containerd take this much while nothing happens.
OWN_CPU: Final = 100
NODE: Final = "moorage/node"
CPUS: Final = "moorage/cpus"
MEMORY: Final = "moorage/memory"
GRES: Final = "moorage/gres-"
# Slurm tells a task only of these generic resources on its node (24.11, 26.05).
GIVEN: Final = {"gpu": "SLURM_GPUS_ON_NODE", "shard": "SLURM_SHARDS_ON_NODE"}
MOST: Final = 63
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NOT_IN_A_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class Share:
    """CPUs and memory; containers may use the `usable` part of the memory."""

    cpus: int
    memory: int
    usable: int


@dataclass(frozen=True)
class Least:
    """The least that a job needs for a cluster."""

    cpus: int
    memory: int


def machine() -> Share:
    """The capacity as kubelet sees it: of the whole machine, whatever the limits of cgroups are.

    kubelet excludes reserved huge pages.
    """
    meminfo = Path("/proc/meminfo").read_text()
    memory = _size(meminfo, "MemTotal")
    return Share(os.cpu_count() or 1, memory, memory - _size(meminfo, "Hugetlb"))


def of_job(cgroup: Path, whole: Share, environ: Mapping[str, str]) -> Share:
    """The job's part of the whole machine, by the limits of the delegated cgroup and of those above it."""
    cpus = min(len(os.sched_getaffinity(0)), whole.cpus, *_granted(environ))
    memory = min([whole.memory, *_limits(cgroup.parent)])
    return Share(cpus, memory, min([memory, whole.usable, *_limits(cgroup)]))


def reserved(whole: Share, job: Share, reserve: int) -> dict[str, str]:
    """kubelet's `systemReserved`: pods are offered the usable part of the capacity, less this."""
    cpu = (whole.cpus - job.cpus) * 1000 + OWN_CPU
    return {"cpu": f"{cpu}m", "memory": f"{max(0, whole.usable - job.usable + reserve) >> 10}Ki"}


def check(job: Share, least: Least) -> None:
    """Raise a UserError if the job is too small for a cluster."""
    few, little = job.cpus < least.cpus, job.memory < least.memory
    if few or little:
        has, needs = (f"{_cpus(share.cpus)} and {_shown(share.memory)}" for share in (job, least))
        more = [f"--cpus-per-task={least.cpus}"] * few + [f"--mem={_shown(least.memory)}"] * little
        raise UserError(
            f"this job has {has} on its node, and a cluster needs {needs}", f"add {' '.join(more)}", code="M-KUBE-21"
        )


def _granted(environ: Mapping[str, str]) -> list[int]:
    """The CPUs that Slurm has granted, which may be less than the job can run on."""
    text = environ.get("SLURM_CPUS_ON_NODE", "")
    return [int(text)] if text.isdecimal() and int(text) else []


def _limits(cgroup: Path) -> Iterator[int]:
    for directory in (cgroup, *cgroup.parents):
        if directory == ROOT:
            return
        with suppress(OSError, ValueError):
            # "max" is no number: there is no limit.
            yield int((directory / "memory.max").read_text())


def _size(meminfo: str, name: str) -> int:
    """A size in bytes; 0 if this kernel does not report it."""
    found = (line for line in meminfo.splitlines() if line.startswith(f"{name}:"))
    return int(next(found, "0 0").split()[1]) << 10


def _cpus(number: int) -> str:
    return f"{number} CPU{'s' * (number != 1)}"


def _shown(memory: int) -> str:
    """The size in the form of --mem."""
    return f"{memory // GIB}G" if memory % GIB == 0 else f"{memory // MIB}M"


def name(node: str, host: str | None = None) -> str:
    """The node's name in Kubernetes: the host's name, or Slurm's if Kubernetes does not accept that."""
    found = (socket.gethostname() if host is None else host).lower()
    return found if _NAME.fullmatch(found) else re.sub(r"[^a-z0-9.-]", "-", node.lower())


def labels(node: str, share: Share, environ: Mapping[str, str], seen: Mapping[str, int]) -> dict[str, str]:
    """The labels that tell what Slurm gave to the job here: numbers, which can be compared; memory in MiB.

    For generic resources, Slurm's own number counts before the number of devices that are seen.
    """
    told = {name: environ.get(variable, "") for name, variable in GIVEN.items()}
    given = {**seen, **{name: int(number) for name, number in told.items() if number.isdecimal()}}
    return {
        NODE: label(node),
        CPUS: str(share.cpus),
        MEMORY: str(share.memory // MIB),
        **{f"{GRES}{name}": str(number) for name, number in given.items() if number},
    }


def label(text: str) -> str:
    return _NOT_IN_A_LABEL.sub("-", text)[:MOST].strip("_.-")
