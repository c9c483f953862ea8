"""What a check found wrong, and who can mend it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from moorage.common.errors import MoorageError, Taken, UserError, no_room


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


class Refused(MoorageError):
    """The job cannot be served here."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__(str(findings[0]))
        self.findings = findings


def demand(findings: Iterable[Finding]) -> None:
    if found := list(findings):
        raise Refused(found)


@contextmanager
def blamed(check: str, fault: Literal["node", "user"]) -> Iterator[None]:
    """What goes wrong here keeps the job from its cluster, and is said to be this one's fault.

    That other jobs have taken something, so to speak, is nobody's fault, and least of all the node's.
    """
    try:
        yield
    except Taken as error:
        raise Refused([Finding(check, error.what, error.remedy, "user")]) from error
    except UserError as error:
        raise Refused([Finding(check, error.what, error.remedy, fault)]) from error


def unforeseen(error: Exception) -> Finding:
    match error:
        case Taken():
            return Finding("node", error.what, error.remedy, "user")
        case UserError():
            return Finding("node", error.what, error.remedy)
        case MoorageError():
            return Finding("node", str(error), "tell the administrator of this node")
        case _:
            cause = f"{type(error).__name__}: {error}"
            return Finding("node", cause, "tell the administrator of this node", "room" if no_room(error) else "node")
