"""What a job has of its node, and what Kubernetes must leave alone to stay within that."""

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
# Of a CPU: what kubelet and containerd take while nothing happens.
OWN_CPU: Final = 100
NODE: Final = "moorage/node"
CPUS: Final = "moorage/cpus"
MEMORY: Final = "moorage/memory"
GRES: Final = "moorage/gres-"
# What Slurm tells a task of its node's generic resources; of others than these it says nothing (24.11, 26.05).
GIVEN: Final = {"gpu": "SLURM_GPUS_ON_NODE", "shard": "SLURM_SHARDS_ON_NODE"}
MOST: Final = 63
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NOT_IN_A_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class Share:
    """`memory` is the job's; `usable` is what its containers may take of that."""

    cpus: int
    memory: int
    usable: int


@dataclass(frozen=True)
class Least:
    """What a job must have for a cluster to be of use."""

    cpus: int
    memory: int


def machine() -> Share:
    """What kubelet takes for the node's capacity: it looks at the machine, and at no limit of a cgroup's.

    Pages that are kept for who asks for huge ones it offers nobody else.
    """
    meminfo = Path("/proc/meminfo").read_text()
    memory = _size(meminfo, "MemTotal")
    return Share(os.cpu_count() or 1, memory, memory - _size(meminfo, "Hugetlb"))


def of_job(tree: Path, whole: Share, environ: Mapping[str, str]) -> Share:
    """This job's, of the whole machine; the limits are those of the cgroups around and of the tree itself."""
    cpus = min(len(os.sched_getaffinity(0)), whole.cpus, *_granted(environ))
    memory = min([whole.memory, *_limits(tree.parent)])
    return Share(cpus, memory, min([memory, whole.usable, *_limits(tree)]))


def reserved(whole: Share, job: Share, reserve: int) -> dict[str, str]:
    """kubelet's `systemReserved`: what is usable of its capacity, less this, is what pods are offered."""
    cpu = (whole.cpus - job.cpus) * 1000 + OWN_CPU
    return {"cpu": f"{cpu}m", "memory": f"{max(0, whole.usable - job.usable + reserve) >> 10}Ki"}


def check(job: Share, least: Least) -> None:
    """A UserError where the job is too small for a cluster."""
    few, little = job.cpus < least.cpus, job.memory < least.memory
    if few or little:
        has, needs = (f"{_cpus(share.cpus)} and {_shown(share.memory)}" for share in (job, least))
        more = [f"--cpus-per-task={least.cpus}"] * few + [f"--mem={_shown(least.memory)}"] * little
        raise UserError(f"this job has {has} on its node, and a cluster needs {needs}", f"add {' '.join(more)}")


def _granted(environ: Mapping[str, str]) -> list[int]:
    """What Slurm says, where it lets jobs run on more."""
    text = environ.get("SLURM_CPUS_ON_NODE", "")
    return [int(text)] if text.isdecimal() and int(text) else []


def _limits(tree: Path) -> Iterator[int]:
    for directory in (tree, *tree.parents):
        if directory == ROOT:
            return
        with suppress(OSError, ValueError):
            # "max" where there is none.
            yield int((directory / "memory.max").read_text())


def _size(meminfo: str, name: str) -> int:
    """0 where this kernel does not say it."""
    found = (line for line in meminfo.splitlines() if line.startswith(f"{name}:"))
    return int(next(found, "0 0").split()[1]) << 10


def _cpus(number: int) -> str:
    return f"{number} CPU{'s' * (number != 1)}"


def _shown(memory: int) -> str:
    """As --mem has it."""
    return f"{memory // GIB}G" if memory % GIB == 0 else f"{memory // MIB}M"


def name(node: str, host: str | None = None) -> str:
    """The host's own, or Slurm's where that is no name for Kubernetes."""
    found = (socket.gethostname() if host is None else host).lower()
    return found if _NAME.fullmatch(found) else re.sub(r"[^a-z0-9.-]", "-", node.lower())


def labels(node: str, share: Share, environ: Mapping[str, str], seen: Mapping[str, int]) -> dict[str, str]:
    """What Slurm gave to the job here: numbers, so that they can be compared, and memory in MiB.

    Of generic resources Slurm's own word counts before what is seen of them.
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
