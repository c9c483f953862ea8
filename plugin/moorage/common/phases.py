"""The phases of a job's start, and the other words that the warden records about a start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Phase:
    """One phase.

    The warden's record and the metrics know it by its word, and the job's output shows its text. The timeout is in
    seconds, on a machine that works at the usual speed; it is 0 where the site configures it.
    """

    word: str
    text: str
    timeout: float = 0.0


CGROUP: Final = Phase("cgroup", "asking for a cgroup")
PODMAN: Final = Phase("podman", "preparing Podman")
IMAGE: Final = Phase("image", "looking for the node image", 60)
LOAD: Final = Phase("load", "loading the node image", 600)
KIND: Final = Phase("kind", "starting kind", 60)
CONTAINER: Final = Phase("container", "creating the node container", 180)
CONFIGURATION: Final = Phase("configuration", "configuring the node", 60)
# kubeadm has its own timeouts, of four minutes each, and reports more details when one of them passes.
CONTROL_PLANE: Final = Phase("control-plane", "starting the control plane", 600)
NETWORK: Final = Phase("network", "installing the pod network", 60)
STORAGE: Final = Phase("storage", "installing the storage class", 60)
READINESS: Final = Phase("readiness", "waiting until the cluster is ready", 300)

# What kind does on the first node, and what comes before it. Other nodes can join when the last of these is over.
UNTIL_JOINABLE: Final = (LOAD, KIND, IMAGE, CONTAINER, CONFIGURATION, CONTROL_PLANE, NETWORK, STORAGE)
INVITATION: Final = Phase(
    "invitation", "waiting for the first node's control plane", sum(phase.timeout for phase in UNTIL_JOINABLE)
)
JOIN: Final = Phase("join", "joining the cluster", 600)
NODES: Final = Phase("nodes", "waiting until all nodes are ready", READINESS.timeout + JOIN.timeout)

ALL: Final = (
    *(CGROUP, PODMAN, IMAGE, LOAD, KIND, CONTAINER, CONFIGURATION, CONTROL_PLANE, NETWORK, STORAGE, READINESS),
    *(INVITATION, JOIN, NODES),
)
# The text of each phase by its word.
PHASES: Final[Mapping[str, str]] = {phase.word: phase.text for phase in ALL}

# A step that a newer kind has and this list has not.
OTHER: Final = "other"
OTHER_TIMEOUT: Final = 300.0

READY: Final = "ready"

FAILED: Final = "failed"

DOWN: Final = "down"

# The Prolog records these two itself: no process of the user's runs yet.
PROLOG: Final = "prolog"

LAUNCH: Final = "launch"

ENDS: Final = frozenset({READY, FAILED, DOWN})

TOLD: Final = (*PHASES, OTHER, READY, FAILED, DOWN)

SPANS: Final = (PROLOG, LAUNCH, *PHASES, OTHER)

LONGEST_CAUSE: Final = 300


def other(text: str) -> Phase:
    """A phase of kind's that has no word of its own."""
    return Phase(OTHER, text, OTHER_TIMEOUT)
