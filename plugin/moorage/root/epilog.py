"""The Epilog: remove everything of a job from this node, however the job ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, reported
from moorage.common.job import job_number
from moorage.root import journal, state
from moorage.root.cleanup.end_of_job import PHASE, Leftover, clean_up
from moorage.root.cleanup.sweep import sweep
from moorage.root.records import record
from moorage.root.records.record import Ending
from moorage.root.state import State

# For a job without a state, which has the configured timeout.
LIMIT: Final = 60.0
OTHERS: Final = 5.0


def main() -> NoReturn:
    with reported("moorage-epilog"):
        job = job_number(os.environ)
        known = _known(job)
        deadline = Deadline(known.limits.epilog if known else LIMIT)
        left = clean_up(job, deadline, Ending.of_hook(os.environ))
        for one in left:
            _report(job, one)
        if not left:
            journal.log("nothing is left", phase=PHASE, job=job)
        _sweep_others(job, deadline.within(OTHERS))
        if known and known.about:
            record.publish(known.about.metrics)
        sys.exit(exit_code(left))


def exit_code(left: Sequence[Leftover]) -> int:
    """1 only for leftovers of root's own: Slurm drains a node for it, and no user may cause that."""
    return int(any(one.ours for one in left))


def _sweep_others(job: int, deadline: Deadline) -> None:
    """Sweep other jobs: a process that kept an earlier Epilog from its work may be gone by now.

    A failure does not concern the job of this Epilog.
    """
    try:
        for found in sweep(deadline, act=True, besides=job):
            if found.touched:
                journal.log(str(found), phase=PHASE, job=found.job)
    except Exception as error:
        journal.log(f"other jobs were not swept: {error!r} [M-LEFT-2]", phase=PHASE, job=job, priority=journal.ERROR)


def _known(job: int) -> State | None:
    try:
        return state.load(job)
    except MoorageError:
        return None


def _report(job: int, left: Leftover) -> None:
    grave = journal.ERROR if left.ours else journal.WARNING
    journal.log(left.line, phase=PHASE, job=job, priority=grave, leftover=left.what)
    print(f"moorage-epilog: job {job}: {left.line}", file=sys.stderr)


if __name__ == "__main__":
    main()
