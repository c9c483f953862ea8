"""Signals that reached the agents, who do not heed them, and not the job's task: somebody will wonder about them."""

from __future__ import annotations

from typing import Final

from moorage.common.deadline import Deadline

# Slurm signals the steps of a job one after the other.
PATIENCE: Final = 3.0
# It sends these before others of its own accord, or to stop and go on.
OF_NO_INTEREST: Final = frozenset({"CONT", "TSTP"})


class Strays:
    def __init__(self, patience: float | None = None) -> None:
        self._patience = PATIENCE if patience is None else patience
        self._waiting: dict[str, Deadline] = {}
        self._settled = set(OF_NO_INTEREST)

    def told(self, name: str) -> None:
        """The agents have got it."""
        if name not in self._settled:
            self._waiting.setdefault(name, Deadline(self._patience))

    def received(self, name: str) -> None:
        """So has the job's task."""
        self._settled.add(name)
        self._waiting.pop(name, None)

    @property
    def patience(self) -> float | None:
        """When to look again; None unless something is waited for."""
        return min((deadline.left for deadline in self._waiting.values()), default=None)

    def certain(self) -> list[str]:
        """Those of which it is certain by now; each once."""
        found = [name for name, deadline in self._waiting.items() if deadline.passed]
        for name in found:
            self.received(name)
        return found
