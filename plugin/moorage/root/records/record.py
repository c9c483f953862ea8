"""The record of a job that is over: one line of JSON in the file of the day, for the administrator alone."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from moorage import __version__
from moorage.common import files, job, phases
from moorage.common.errors import code_of, told
from moorage.root import journal

if TYPE_CHECKING:
    from moorage.common.spec import Spec
    from moorage.node.finding import Finding
    from moorage.root.cleanup.end_of_job import Leftover
    from moorage.root.records.start_log import Course
    from moorage.root.state import State

PHASE: Final = "record"
SUFFIX: Final = ".jsonl"
DAY: Final = "%Y-%m-%d"
# Of a day's file: room for thousands of jobs, however long their records are.
MOST_BYTES: Final = 16 << 20
LONGEST: Final = 300
# For a job whose Prolog has not said how long its record is kept.
DAYS: Final = 30
MOST_NAMED: Final = 20
# The fields of a job's description that administrators can use.
DESCRIBED: Final = ("spec", "nodes", "place", "uplink", "uplink_reason", "versions")

Record = dict[str, Any]
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\.jsonl")
_EXIT: Final = re.compile(r"[0-9]{1,5}:[0-9]{1,5}")


@dataclass(frozen=True)
class Ending:
    """Who found that the job was over, and how its script ended, as Slurm has it: CODE:SIGNAL."""

    by: Literal["epilog", "sweep", "prolog"]
    exit: str | None = None

    @classmethod
    def of_hook(cls, environ: Mapping[str, str]) -> Ending:
        code = environ.get("SLURM_JOB_EXIT_CODE2", "")
        return cls("epilog", code if _EXIT.fullmatch(code) else None)


def ended(state: State, of: Course, left: Iterable[Leftover], ending: Ending) -> Record:
    """The record of a job that was prepared, whatever became of it."""
    return {
        **_head(state.job),
        "outcome": of.outcome,
        "phase": None if of.outcome == phases.READY else of.reached or None,
        "cause": _short(of.cause) or None,
        "code": code_of(of.cause) or None,
        "ending": _ending(state, of, ending),
        "by": ending.by,
        "exit": ending.exit,
        "begun": _moment(state.about.begun) if state.about else None,
        "start_seconds": of.seconds,
        "phases": of.spans,
        "up_seconds": of.up,
        "usage": state.usage.as_dict() if state.usage else None,
        "leftovers": [
            {"what": one.what, "name": _short(one.name), "cause": _short(one.cause), "ours": one.ours} for one in left
        ][:MOST_NAMED],
        "scratch": state.scratch.kind if state.scratch else None,
        **(state.about.described if state.about else {}),
    }


def refused(of: job.Job | None, spec: Spec | None, finding: Finding, begun: float) -> Record:
    """The record of a job that the Prolog has refused."""
    return {
        **(_head(of) if of else {}),
        **({"spec": spec.as_dict()} if spec else {}),
        "outcome": "refused",
        "phase": phases.PROLOG,
        "check": finding.check,
        "fault": finding.fault,
        "cause": _short(str(finding)),
        "code": finding.code or None,
        "by": "prolog",
        "begun": _moment(begun),
    }


def described(description: Mapping[str, Any], **more: Any) -> Record:  # noqa: ANN401
    """The part of the job's description that its record has, and what only the Prolog knows."""
    return {name: description[name] for name in DESCRIBED if name in description} | more


def put(make: Callable[[], Record], days: int, directory: str | Path | None) -> None:
    """Keep the record for so many days, and count it if there is a directory for metrics. Never fails."""
    record: Record = {}
    try:
        record = make()
        if "ending" in record:
            _tell(record)
        if days and "job" in record:
            _append(json.dumps(record), days)
        if directory:
            # Only here: most sites have no metrics.
            from moorage.root.records import prometheus

            prometheus.count(record)
    except Exception as error:
        _complain(error, record.get("job"))


def _tell(record: Record) -> None:
    """The record in short, for the journal."""
    seconds = record["start_seconds"]
    start = f"ready after {seconds:g} s" if seconds is not None else record["outcome"]
    where = f" in {record['phase']}" if record["phase"] else ""
    journal.log(
        f"over: {start}{where}, {record['ending']}",
        phase=PHASE,
        job=record["job"],
        outcome=record["outcome"],
        ending=record["ending"],
        step=record["phase"] or "",
        seconds=seconds if seconds is not None else "",
    )


def publish(directory: str | Path | None) -> None:
    """Write the file for Prometheus, if there is a directory for it. Never fails."""
    try:
        if directory:
            from moorage.root.records import prometheus

            prometheus.publish(Path(directory))
    except Exception as error:
        _complain(error, None)


def _complain(error: Exception, number: int | None) -> None:
    journal.log(f"not put on record: {told(error)}", phase=PHASE, job=number, priority=journal.WARNING)


def place() -> Path:
    return job.STATE.with_name("records")


def _append(line: str, days: int) -> None:
    place().mkdir(mode=0o700, parents=True, exist_ok=True)
    today = place() / (time.strftime(DAY, time.gmtime()) + SUFFIX)
    size = today.lstat().st_size if today.exists() else 0
    if not size:
        _forget_before(days)
    if size + len(line) > MOST_BYTES:
        raise OSError(f"{today.name} has {size >> 20} MiB: nothing more is kept of this day")
    files.append(today, line + "\n")


def _forget_before(days: int) -> None:
    oldest = time.strftime(DAY, time.gmtime(time.time() - days * 86400)) + SUFFIX
    for path in _days():
        if path.name < oldest:
            with suppress(FileNotFoundError):
                path.unlink()


def _days() -> Iterator[Path]:
    with os.scandir(place()) as entries:
        yield from [Path(entry.path) for entry in entries if _DAY.fullmatch(entry.name)]


def _head(of: job.Job) -> Record:
    return {
        "moorage": __version__,
        "time": _moment(time.time()),
        "node": of.node,
        "job": of.id,
        "restart": of.restart,
        "user": of.user,
        "uid": of.uid,
    }


def _ending(state: State, of: Course, ending: Ending) -> str:
    if not state.this_boot:
        return "reboot"
    if ending.by != "epilog":
        return "abandoned"
    return "orderly" if of.orderly else "cut off"


def _moment(seconds: float) -> str:
    return time.strftime(journal.MOMENT, time.gmtime(seconds))


def _short(text: str) -> str:
    return journal.line(text)[:LONGEST]
