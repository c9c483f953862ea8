"""moorage doctor: what a Prolog would find wrong on this node, and more, found before a job does."""

from __future__ import annotations

import argparse
import json
import os
import pwd
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from moorage.common.errors import FAILED, UserError
from moorage.common.job import Job
from moorage.doctor import examine
from moorage.doctor.examine import Report
from moorage.node import checks, subids
from moorage.node.finding import Finding

PASSES: Final = 3
# What any user can bring about.
PASSING: Final = frozenset({"room", "leftover"})
ABOUT: Final = """\
Look for all that would keep jobs with --k8s from starting on this node, or would go wrong later: one line for each
fault, with its remedy. Ends with 1 if there is any, or with 3 if all that is wrong is want of room on a disk, which
users can fill, or what is left of jobs, which the sweep removes; advice is no fault.

As an ordinary user it looks at what a user may see, and at his own account; as root, at everything.
"""


def main(words: Sequence[str]) -> int:
    arguments = parser().parse_args(words)
    report = examine.examine(os.environ, quick=arguments.quick, every_byte=arguments.images)
    for user in _users(arguments):
        report.add(*user_findings(user))
    print(as_json(report) if arguments.json else as_lines(report))
    if report.left_out and not arguments.json:
        print(f"not looked at, because only root may: {', '.join(report.left_out)}", file=sys.stderr)
    return exit_code(report)


def exit_code(report: Report) -> int:
    """A health check that drains nodes must be able to leave alone what a user has brought about."""
    kinds = {finding.fault for finding in report.faults}
    return 0 if not kinds else PASSES if kinds <= PASSING else FAILED


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="moorage doctor", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--user", action="append", default=[], help="look at this user, too; may be given again")
    parser.add_argument("--json", action="store_true", help="print {node, findings, not_looked_at, versions, images}")
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument(
        "--quick", action="store_true", help="start no programs whose version is known: for a health check"
    )
    depth.add_argument("--images", action="store_true", help="read every byte of the node's images, too")
    return parser


def as_lines(report: Report) -> str:
    """Faults come first: who wants one line takes the first. What drains no node is the last of them."""
    worst_first = sorted(report.faults, key=lambda fault: fault.fault in PASSING)
    faults = [f"{fault.check}: {fault}" for fault in worst_first] or ["nothing is wrong"]
    advice = [f"{one.check}: advice: {one}" for one in report.findings if one.fault == "advice"]
    images = [f"images are shown by {report.images}"] if report.images else []
    return "\n".join([*faults, *advice, *images])


def as_json(report: Report) -> str:
    found = [finding.as_dict() for finding in report.findings]
    said = {"findings": found, "not_looked_at": report.left_out, "versions": report.versions, "images": report.images}
    return json.dumps({"node": socket.gethostname(), **said})


def user_findings(name: str) -> Iterator[Finding]:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UserError(f"there is no user {name!r} on this node", "name another one") from None
    nobodys = Job(id=0, restart=0, uid=entry.pw_uid, gid=entry.pw_gid, user=name, node="", names=frozenset())
    yield from checks.user_checks(nobodys, subids.granted(name))


def _users(arguments: argparse.Namespace) -> list[str]:
    """Those that were named; an ordinary user wonders about himself."""
    named: list[str] = arguments.user
    if not named and not arguments.quick and os.geteuid() != 0:
        with suppress(KeyError):
            return [pwd.getpwuid(os.geteuid()).pw_name]
    return named
