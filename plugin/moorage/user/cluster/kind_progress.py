"""The phases of a cluster's start: how kind tells of them, what the job is told, and how long each may take."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError


@dataclass(frozen=True)
class Phase:
    """`limit` is in seconds, on a machine that is in no hurry but works."""

    text: str
    limit: float


LOADING: Final = Phase("loading the node image", 600)
STARTING: Final = Phase("starting kind", 60)
READYING: Final = Phase("waiting until the cluster is ready", 300)
# What nodes beside the first do, and what that one does for them.
CREATING: Final = Phase("creating the node container", 180)
JOINING: Final = Phase("joining the cluster", 600)
GATHERING: Final = Phase("waiting until all nodes are ready", READYING.limit + JOINING.limit)
LOOKING: Final = "Ensuring node image"
NETWORK: Final = "Installing CNI"
# By how kind 0.33 begins to tell of them.
OF_KIND: Final = {
    LOOKING: Phase("looking for the node image", 60),
    "Preparing nodes": CREATING,
    "Writing configuration": Phase("configuring the node", 60),
    # kubeadm has limits of its own, of four minutes each, and says more when one of them runs out.
    "Starting control-plane": Phase("starting the control plane", 600),
    NETWORK: Phase("installing the pod network", 60),
    "Installing StorageClass": Phase("installing the storage class", 60),
}
# What else kind may find to do.
OTHER: Final = 300.0
# Looking for what went wrong, once something did.
EVIDENCE: Final = 60.0
# One question to the API, which has much to do then.
ANSWER: Final = 15.0

_BEGUN: Final = re.compile(r"^\s*\N{BULLET}\s+(?P<what>\S.*?)\s*\.\.\.\s*$")


def begun(line: str) -> Phase | None:
    """The phase that begins with this line of kind's."""
    if not (found := _BEGUN.match(line)):
        return None
    known = (phase for said, phase in OF_KIND.items() if found["what"].startswith(said))
    return next(known, Phase(f"kind: {found['what']}", OTHER))


def first(patience: float) -> float:
    """How long it may be until a cluster can be joined."""
    return sum(phase.limit for phase in (LOADING, STARTING, *OF_KIND.values())) * patience


def longest(patience: float, nodes: int = 1) -> float:
    """How long all of them may take together."""
    last = READYING if nodes == 1 else GATHERING
    return first(patience) + last.limit * patience + EVIDENCE


class Course:
    """Which phase it is, and whether that takes too long; `tell` is called with the text of each."""

    def __init__(self, tell: Callable[[str], object], patience: float) -> None:
        self._tell = tell
        self._patience = patience
        self.begin(OF_KIND[LOOKING])

    def begin(self, phase: Phase) -> Deadline:
        self.phase = phase
        self.deadline = Deadline(phase.limit * self._patience)
        self._tell(phase.text)
        return self.deadline

    def detail(self, text: str) -> None:
        self._tell(f"{self.phase.text}: {text}")

    def check(self) -> None:
        if self.deadline.passed:
            raise self.overdue()

    def overdue(self, missing: str = "") -> MoorageError:
        """What is said of a phase that ran out, and what it was waiting for."""
        limit = self.phase.limit * self._patience
        return MoorageError(f"{self.phase.text}: not done after {limit:g} s{missing and f', {missing}'}")
