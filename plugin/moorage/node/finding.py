"""What a check found: the cause, the remedy, who can act on it, and what it means for the node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final, Literal

from moorage.common.errors import MoorageError, Taken, UserError, coded, no_room

# Who can act on it: the user of the job, the administrator on this node, or the site for all its nodes.
Owner = Literal["user", "node", "site"]
# A full disk and what a job has left are things that any user can bring about, and that pass. With advice jobs start:
# something costs more than it has to, or may go wrong one day.
Kind = Literal["fault", "room", "leftover", "advice"]
OWNERS: Final[tuple[Owner, ...]] = ("user", "node", "site")


@dataclass(frozen=True)
class Meaning:
    """The consequences of a finding."""

    # As the journal's field FAULT, the records and `moorage doctor --json` have it.
    word: str
    # Whether `node_fault: drain` applies to it. Nothing that a user can bring about may drain a node.
    drains: bool = False


# The one place that says so. Only for faults it matters who can act on them.
MEANINGS: Final[Mapping[tuple[Owner, Kind], Meaning]] = {
    ("user", "fault"): Meaning("user"),
    ("node", "fault"): Meaning("node", drains=True),
    ("site", "fault"): Meaning("node", drains=True),
    **{(owner, "room"): Meaning("room") for owner in OWNERS},
    **{(owner, "leftover"): Meaning("leftover") for owner in OWNERS},
    **{(owner, "advice"): Meaning("advice") for owner in OWNERS},
}


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be. Its text is one line: the cause, then the remedy."""

    check: str
    cause: str
    remedy: str
    owner: Owner = "node"
    kind: Kind = "fault"
    code: str = ""

    def __str__(self) -> str:
        return f"{self.cause}: {self.remedy}"

    @property
    def fault(self) -> str:
        """The word that journal, records and `moorage doctor --json` have for owner and kind together."""
        return MEANINGS[self.owner, self.kind].word

    @property
    def drains(self) -> bool:
        return MEANINGS[self.owner, self.kind].drains

    @property
    def line(self) -> str:
        """The text as people read it: with its code."""
        return coded(str(self), self.code)

    def as_dict(self) -> dict[str, str]:
        return {**asdict(self), "fault": self.fault}


class Refused(MoorageError):
    """This node cannot serve the job."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__(str(findings[0]), code=findings[0].code)
        self.findings = findings


def demand(findings: Iterable[Finding]) -> None:
    """Refuse the job if there are any findings."""
    if found := list(findings):
        raise Refused(found)


@contextmanager
def blamed(check: str, owner: Owner) -> Iterator[None]:
    """Turn an error in here into a finding of this check and this owner, which refuses the job.

    Where other jobs have taken what this one needs, the owner is the user: such a finding never drains the node.
    """
    try:
        yield
    except Taken as error:
        raise Refused([Finding(check, error.what, error.remedy, "user", code=error.code)]) from error
    except UserError as error:
        raise Refused([Finding(check, error.what, error.remedy, owner, code=error.code)]) from error


def unforeseen(error: Exception) -> Finding:
    """The finding for an error that no check expected."""
    match error:
        case Taken():
            return Finding("node", error.what, error.remedy, "user", code=error.code)
        case UserError():
            return Finding("node", error.what, error.remedy, code=error.code)
        case MoorageError():
            return Finding("node", str(error), "tell the administrator of this node", code=error.code or "M-NODE-1")
        case _:
            cause = f"{type(error).__name__}: {error}"
            kind: Kind = "room" if no_room(error) else "fault"
            return Finding("node", cause, "tell the administrator of this node", kind=kind, code="M-NODE-1")
