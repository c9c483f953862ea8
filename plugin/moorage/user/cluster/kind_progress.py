"""The phase that a cluster's start is in: the lines in which kind announces it, and its deadline."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from moorage.common import phases
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.phases import Phase

# By the words with which kind 0.33 announces them.
ANNOUNCED: Final = {
    "Ensuring node image": phases.IMAGE,
    "Preparing nodes": phases.CONTAINER,
    "Writing configuration": phases.CONFIGURATION,
    "Starting control-plane": phases.CONTROL_PLANE,
    "Installing CNI": phases.NETWORK,
    "Installing StorageClass": phases.STORAGE,
}
# To collect logs after a failure.
EVIDENCE: Final = 60.0
# For one request to the API, which is busy during a start.
ANSWER: Final = 15.0

_LINE: Final = re.compile(r"^\s*\N{BULLET}\s+(?P<what>\S.*?)\s*\.\.\.\s*$")


def announced(line: str) -> Phase | None:
    """The phase that begins with this line of kind's; None if none does."""
    if not (found := _LINE.match(line)):
        return None
    known = (phase for words, phase in ANNOUNCED.items() if found["what"].startswith(words))
    return next(known, phases.other(f"kind: {found['what']}"))


def longest(slowness: float, nodes: int = 1) -> float:
    """The timeout of a whole start."""
    last = phases.READINESS if nodes == 1 else phases.NODES
    return (phases.INVITATION.timeout + last.timeout) * slowness + EVIDENCE


class CurrentPhase:
    """The phase that a start is in; `tell` is called with the phase and the text of each change."""

    def __init__(self, tell: Callable[[Phase, str], object], slowness: float) -> None:
        self._tell = tell
        self._slowness = slowness
        self.begin(phases.IMAGE)

    def begin(self, phase: Phase) -> None:
        self.phase = phase
        self.deadline = Deadline(phase.timeout * self._slowness)
        self._tell(phase, phase.text)

    @property
    def text(self) -> str:
        return self.phase.text

    def detail(self, text: str) -> None:
        self._tell(self.phase, f"{self.phase.text}: {text}")

    def check(self) -> None:
        """Raise a MoorageError if the phase takes too long."""
        if self.deadline.passed:
            raise self.overdue()

    def overdue(self, missing: str = "") -> MoorageError:
        """The error of a phase whose timeout has passed; `missing` says what it waited for."""
        timeout = self.phase.timeout * self._slowness
        return MoorageError(
            f"{self.phase.text}: not done after {timeout:g} s{missing and f', {missing}'}", code="M-KUBE-14"
        )
