"""`moorage sweep`: clean up after jobs that no process answers for any more, as after a power cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.root import lock, state
from moorage.root.cleanup.end_of_job import Leftover, clean_up_held
from moorage.root.lock import Lock
from moorage.root.net import names
from moorage.root.records.record import Ending
from moorage.root.state import State

# The timeout for one job.
EACH: Final = 60.0


@dataclass(frozen=True)
class Found:
    """A job that has a state on this node, and what the sweep did, or would do.

    `why` is the reason why the job is abandoned, if it is.
    """

    job: int
    verdict: str
    touched: bool = False
    left: tuple[Leftover, ...] = ()
    why: str = ""
    unknown: bool = False

    @property
    def to_do(self) -> bool:
        """Whether a sweep would clean up, or could not clean up everything."""
        return bool(self.left) or (bool(self.why) and not self.touched)

    def __str__(self) -> str:
        return "; ".join([f"job {self.job} {self.verdict}", *map(str, self.left)])


def sweep(deadline: Deadline, *, act: bool, besides: int | None = None) -> Iterator[Found]:
    """Look at each job that has a state or a link here, and clean up after those that no process answers for."""
    for job in sorted({*state.jobs(), *names.jobs()}):
        if job != besides and not deadline.passed:
            try:
                with lock.locked(job) as held:
                    yield _looked_at(job, held, deadline.within(EACH), act)
            except lock.Busy:
                yield Found(job, "is in use")


def _looked_at(job: int, held: Lock, deadline: Deadline, act: bool) -> Found:
    try:
        known = state.load(job)
    except MoorageError as error:
        return Found(job, f"is left alone: {error}", unknown=True)
    if known is None and not names.links_of(job):
        held.remove()
        return Found(job, "has just gone")
    if known and not known.abandoned:
        return Found(job, "is in use")
    why = _why(known)
    if not act:
        return Found(job, f"would be removed: {why}", why=why)
    left = tuple(clean_up_held(job, held, deadline, Ending("sweep")))
    return Found(job, f"was removed as far as it could be: {why}" if left else f"was removed: {why}", True, left, why)


def _why(known: State | None) -> str:
    if known is None:
        return "only its links are known"
    return "its processes are gone" if known.this_boot else "the node has booted since"
