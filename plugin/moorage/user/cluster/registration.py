"""By what name and labels a job's node is known to Kubernetes."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Final

from moorage.user.cluster.node_resources import MIB, Share

NODE: Final = "moorage/node"
CPUS: Final = "moorage/cpus"
MEMORY: Final = "moorage/memory"
GRES: Final = "moorage/gres-"
# What Slurm tells a task of its node's generic resources; of others than these it says nothing (24.11, 26.05).
GIVEN: Final = {"gpu": "SLURM_GPUS_ON_NODE", "shard": "SLURM_SHARDS_ON_NODE"}
MOST: Final = 63

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NOT_IN_A_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]")


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
