"""How far a job's start has come on this node: a line for each step of it, in the run directory, written by root alone.

The Prolog writes the first, the warden those that the job's agent tells. When each was is root's own clock; which one
it was is the user's word, out of a list that is fixed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

from moorage.common import files, job
from moorage.common.errors import MoorageError, shortened
from moorage.common.phases import DOWN, ENDS, FAILED, LONGEST_CAUSE, PHASES, READY, TOLD

NAME: Final = "course"
# A start has a dozen steps; nobody has more to tell.
MOST: Final = 64


@dataclass(frozen=True)
class Step:
    """What began, and when: in seconds since the node has booted."""

    at: float
    word: str
    cause: str = ""


@dataclass(frozen=True)
class Course:
    steps: tuple[Step, ...] = ()

    @property
    def outcome(self) -> str:
        """What became of the start: that is settled by the first word about it."""
        words = (step.word for step in self.steps)
        return next((word for word in words if word in (READY, FAILED)), "unfinished")

    @property
    def reached(self) -> str:
        """The last phase of the start; empty if nothing is known."""
        return next((step.word for step in reversed(self.start) if step.word not in ENDS), "")

    @property
    def start(self) -> tuple[Step, ...]:
        """Up to where it was settled."""
        ends = [index for index, step in enumerate(self.steps) if step.word in ENDS]
        return self.steps[: ends[0] + 1] if ends else self.steps

    @property
    def spans(self) -> dict[str, float]:
        """How long each phase took that came to its end."""
        found: dict[str, float] = {}
        for step, after in pairwise(self.start):
            found[step.word] = round(found.get(step.word, 0.0) + after.at - step.at, 3)
        return found

    @property
    def seconds(self) -> float | None:
        """From the Prolog until the job was ready."""
        ready = self._first(READY)
        return round(ready.at - self.steps[0].at, 3) if ready else None

    @property
    def up(self) -> float | None:
        """From there to its end: what was told of it, or now."""
        ready, down = self._first(READY), self._first(DOWN)
        return round((down.at if down else now()) - ready.at, 3) if ready else None

    def since(self, step: Step) -> float:
        """How long after the first that is known of."""
        return round(step.at - self.steps[0].at, 3) if self.steps else 0.0

    @property
    def orderly(self) -> bool:
        """Whether the agent took everything down, and was not ended itself."""
        return self._first(DOWN) is not None

    @property
    def cause(self) -> str:
        failed = self._first(FAILED)
        return failed.cause if failed else ""

    def _first(self, word: str) -> Step | None:
        return next((step for step in self.steps if step.word == word), None)


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def note(of: job.Job, word: str, cause: str = "", at: float | None = None) -> Step:
    """Only root can, and only root calls this."""
    step = Step(round(now() if at is None else at, 3), word, cause)
    files.append(of.run / NAME, json.dumps(asdict(step)) + "\n")
    return step


def hear(of: job.Job, fields: Mapping[str, str]) -> Step | None:
    """Note what a process of the job tells; None if it has told that just before. A MoorageError if it is nonsense."""
    word, cause = fields.get("word", ""), fields.get("cause", "")
    if word not in TOLD:
        raise MoorageError(f"no such step of a start: tell one of {', '.join(TOLD)}")
    known = read(of.id).steps
    if known and known[-1].word == word:
        return None
    if len(known) >= MOST:
        raise MoorageError("more has been told of this start than there can be to tell")
    return note(of, word, shortened(" ".join(cause.split()), LONGEST_CAUSE))


def told(step: Step) -> str:
    """For the journal."""
    match step.word:
        case "ready":
            return "the job is ready"
        case "failed":
            return f"the job's start or what it started has failed: {step.cause or 'nobody said why'}"
        case "down":
            return "everything is taken down"
        case word:
            return PHASES.get(word, "something else is being done")


def read(number: int) -> Course:
    """As far as it is known, which after a power cut it is not."""
    with suppress(OSError):
        return Course(tuple(_steps(files.private(job.run_directory(number) / NAME).splitlines())))
    return Course()


def _steps(lines: Iterable[str]) -> Iterator[Step]:
    """Its user can fill the run directory, and so have a line cut off."""
    for line in lines:
        with suppress(ValueError, TypeError):
            yield Step(**json.loads(line))
