"""What a check found wrong, and who can mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """`fault` decides what becomes of the node: a user's never touches it.

    Nor does what any user can bring about and what passes: want of room, and what is left of a job until it is swept.
    Advice is no fault: jobs start, and something costs more than it has to, or may go wrong one day.
    """

    check: str
    cause: str
    remedy: str
    fault: Literal["node", "user", "room", "leftover", "advice"] = "node"

    def __str__(self) -> str:
        return f"{self.cause}: {self.remedy}"
