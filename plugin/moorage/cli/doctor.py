"""`moorage doctor`: what would keep jobs from starting on this node, found before a job meets it."""

from __future__ import annotations

import argparse
import os
import pwd
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from moorage.cli import output
from moorage.cli.manual import ON_A_NODE, WRONG_WORDS, Manual, Parser
from moorage.common.errors import FAILED, MoorageError, told
from moorage.common.job import Job
from moorage.doctor import examine
from moorage.doctor.examine import Report
from moorage.node import checks, subids
from moorage.node.finding import Finding

PASSES: Final = 3
CRASHED: Final = 4
# Every user can cause these.
PASSING: Final = frozenset({"room", "leftover"})
ABOUT: Final = """\
Check whether jobs with --k8s can start on this node, and whether something goes wrong later.

Each finding is one line: the check, the cause, the remedy. Advice is no fault: jobs start in spite of it. As an
ordinary user you see what users may see, and your own account; as root, everything."""
EXAMPLES: Final = (
    ("srun moorage doctor", "check a node, and your account on it, before you submit a job"),
    ("moorage doctor --user alice", "check also whether this user's jobs can start"),
    ("moorage doctor --quick", "check within a second, as a health check does"),
)
CODES: Final = (
    (0, "jobs can start"),
    (FAILED, "at least one fault was found"),
    WRONG_WORDS,
    (PASSES, "every fault found is one that users cause and that passes: a full disk, or leftovers of a job"),
    (CRASHED, "the doctor itself failed, and found nothing out"),
)


def main(words: Sequence[str]) -> int:
    arguments = parser().read(words)
    try:
        report = examine.examine(os.environ, quick=arguments.quick, every_byte=arguments.images)
        for user in _users(arguments):
            report.add(*user_findings(user))
        print(as_json(report) if arguments.json else as_lines(report), flush=True)
    except BrokenPipeError:
        raise
    except MoorageError as error:
        print(f"moorage: {told(error)}", file=sys.stderr)
        return CRASHED
    except Exception:
        traceback.print_exc()
        print("moorage: the doctor itself failed: report the lines above; this node was not checked", file=sys.stderr)
        return CRASHED
    if report.left_out and not arguments.json:
        print(f"not looked at, because only root may: {', '.join(report.left_out)}", file=sys.stderr)
    return exit_code(report)


def exit_code(report: Report) -> int:
    """A health check drains a node for FAILED alone: no user can bring that about."""
    kinds = {finding.fault for finding in report.faults}
    return 0 if not kinds else PASSES if kinds <= PASSING else FAILED


def parser() -> Parser:
    made = Parser(prog="moorage doctor", manual=Manual(ABOUT, ON_A_NODE, EXAMPLES, CODES))
    made.add_argument(
        "--user", metavar="NAME", action="append", default=[], help="check this user's account, too; can be repeated"
    )
    what = "print {schema, node, findings, not_looked_at, versions, images}"
    made.add_argument("--json", action="store_true", help=what)
    depth = made.add_mutually_exclusive_group()
    what = "skip what takes longer than a moment, and use the program versions that are on record"
    depth.add_argument("--quick", action="store_true", help=what)
    depth.add_argument("--images", action="store_true", help="also read every byte of the node's images")
    return made


def as_lines(report: Report) -> str:
    """Faults come first, those that users cause last of them: a health check drains a node with the first line."""
    worst_first = sorted(report.faults, key=lambda fault: fault.fault in PASSING)
    faults = [f"{fault.check}: {fault.line}" for fault in worst_first] or ["nothing is wrong"]
    advice = [f"{one.check}: advice: {one.line}" for one in report.findings if one.fault == "advice"]
    images = [f"images are shown by {report.images}"] if report.images else []
    return "\n".join([*faults, *advice, *images])


def as_json(report: Report) -> str:
    return output.as_json(
        node=socket.gethostname(),
        findings=[finding.as_dict() for finding in report.findings],
        not_looked_at=report.left_out,
        versions=report.versions,
        images=report.images,
    )


def user_findings(name: str) -> Iterator[Finding]:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        yield Finding(
            "user", f"there is no user {name!r} on this node", "give another name to --user", "user", code="M-CHECK-1"
        )
        return
    job = Job(id=0, restart=0, uid=entry.pw_uid, gid=entry.pw_gid, user=name, node="", names=frozenset())
    yield from checks.user_checks(job, subids.granted(name))


def _users(arguments: argparse.Namespace) -> list[str]:
    """The users that were named; without a name, an ordinary user's own account."""
    named: list[str] = arguments.user
    if not named and not arguments.quick and os.geteuid() != 0:
        with suppress(KeyError):
            return [pwd.getpwuid(os.geteuid()).pw_name]
    return named
