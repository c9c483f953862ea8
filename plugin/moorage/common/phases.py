"""The phases of a job's start, and the other words by which an agent tells the warden how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# By what the job's output has for them.
PHASES: Final[Mapping[str, str]] = {
    "cgroup": "asking for a cgroup",
    "podman": "preparing Podman",
    "image": "looking for the node image",
    "load": "loading the node image",
    "kind": "starting kind",
    "container": "creating the node container",
    "configuration": "configuring the node",
    "control-plane": "starting the control plane",
    "network": "installing the pod network",
    "storage": "installing the storage class",
    "readiness": "waiting until the cluster is ready",
    "invitation": "waiting for the first node's control plane",
    "join": "joining the cluster",
    "nodes": "waiting until all nodes are ready",
}

OTHER: Final = "other"

READY: Final = "ready"

FAILED: Final = "failed"

DOWN: Final = "down"

# The Prolog's own, and what comes before a user's process is there to tell.
PROLOG: Final = "prolog"

LAUNCH: Final = "launch"

ENDS: Final = frozenset({READY, FAILED, DOWN})

TOLD: Final = (*PHASES, OTHER, READY, FAILED, DOWN)

SPANS: Final = (PROLOG, LAUNCH, *PHASES, OTHER)

LONGEST_CAUSE: Final = 300


def named(text: str) -> str:
    """The phase that a job's output calls so; details may follow."""
    return next((name for name, said in PHASES.items() if text.startswith(said)), OTHER)
