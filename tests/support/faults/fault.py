"""A fault of a node: how it is made, and what is said of it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from support.faults.changes import Change
from support.faults.places import Places

How = Callable[[Places], Change]
# The code at the end of a line, where a job or the journal shows it.
CODE = r" \[M-[A-Z]+-[0-9]+\]"


class Effect(Enum):
    NONE = "nothing is wrong, or nothing of Moorage is there to say so"
    FAILS = "the Prolog lets the job fail with the line, and the node goes on"
    DRAINS = "the Prolog drains the node, because nothing could keep the script from running, or the site wants it so"
    AGENT = "no hook sees it, and the job's own agent says the line"
    FOUND = "no job is told, or not in these words: the line is the doctor's alone"
    ADVICE = "jobs start, on one node at least, and the doctor gives advice"


@dataclass(frozen=True)
class Fault:
    """One fault. What is said are patterns, in which <slurm>, <podman> and the like stand for paths."""

    effect: Effect
    # Check, cause and remedy, as the doctor says them; empty if the doctor has nothing to say.
    doctor: str
    # How it is made, where it can be made.
    guest: How | None = None
    made_up: How | None = None
    # Cause and remedy as the job or the journal has them, if these differ from the doctor's.
    job: str = ""

    @property
    def line(self) -> str:
        """What the job is told, or the journal."""
        return self.job or self.doctor.partition(": ")[2]


def on_both(effect: Effect, doctor: str, how: How, *, job: str = "") -> Fault:
    return Fault(effect, doctor, how, how, job)


def in_guest(effect: Effect, doctor: str, how: How, *, job: str = "") -> Fault:
    return Fault(effect, doctor, how, None, job)


def made_up(effect: Effect, doctor: str, how: How) -> Fault:
    return Fault(effect, doctor, None, how)
