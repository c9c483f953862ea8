"""`moorage sweep`: clean up after jobs that ended without cleaning up, for example in a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

from moorage.cli.manual import AS_ROOT, Manual, Parser
from moorage.cli.output import as_json
from moorage.common.deadline import Deadline
from moorage.common.errors import FAILED, UserError
from moorage.root import journal
from moorage.root.cleanup.sweep import Found, sweep
from moorage.root.records import record

LIMIT: Final = 600.0
ABOUT: Final = """\
Say which jobs ended on this node without cleaning up, and with --now clean up after them.

A job that still runs is never touched. A timer calls `moorage sweep --now` at boot and every hour, so that you need it
only to look, or to hurry."""
EXAMPLES: Final = (
    ("moorage sweep", "say what would be done"),
    ("moorage sweep --now", "do it"),
)
CODES: Final = (
    (0, "done; nothing of Moorage's is left of the jobs that were cleaned up"),
    (FAILED, "something is left, and the job's line says what; or the sweep failed"),
    (2, "the command line is wrong; nothing was done"),
)


def main(words: Sequence[str]) -> int:
    arguments = parser().read(words)
    if os.geteuid() != 0:
        raise UserError("only root can sweep a node", "run it with sudo", code="M-COMMAND-4")
    seen = []
    for found in sweep(Deadline(LIMIT), act=arguments.now):
        seen.append(found)
        if not arguments.json:
            print(found)
        if found.touched:
            journal.log(str(found), phase="sweep", job=found.job)
    if arguments.json:
        print(as_json(acted=arguments.now, jobs=[plain(found) for found in seen]))
    if arguments.now:
        # Only here: it takes YAML.
        from moorage.node.config import load

        record.publish(load.examine()[0].metrics.directory)
    return FAILED if _ours_is_left(seen) else 0


def plain(found: Found) -> dict[str, object]:
    left = [str(one) for one in found.left]
    return {"job": found.job, "verdict": found.verdict, "why": found.why, "cleaned_up": found.touched, "left": left}


def parser() -> Parser:
    made = Parser(prog="moorage sweep", manual=Manual(ABOUT, AS_ROOT, EXAMPLES, CODES))
    made.add_argument("--now", action="store_true", help="clean up, instead of saying what would be done")
    what = "print {schema, acted, jobs: [{job, verdict, why, cleaned_up, left}]}"
    made.add_argument("--json", action="store_true", help=what)
    return made


def _ours_is_left(seen: Iterable[Found]) -> bool:
    return any(left.ours for found in seen for left in found.left)
