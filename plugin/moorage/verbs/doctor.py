"""moorage doctor: what a Prolog would find wrong on this node, found before a job does."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pwd
from collections.abc import Iterator, Sequence

from moorage import checks, config, subids
from moorage.config import Config
from moorage.errors import FAILED, UserError
from moorage.facts import remembered
from moorage.finding import Finding
from moorage.job import Job


def main(words: Sequence[str]) -> int:
    arguments = parser().parse_args(words)
    if os.geteuid() != 0:
        raise UserError("some of a node's faults show to root only", "run it with sudo")
    found = [*node_findings(), *(finding for user in arguments.user for finding in user_findings(user))]
    if arguments.json:
        print(json.dumps([dataclasses.asdict(finding) for finding in found]))
    else:
        print("\n".join(f"{finding.check}: {finding}" for finding in found) or "nothing is wrong")
    return FAILED if found else 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="moorage doctor",
        description="Look for all that would keep jobs with --k8s from starting on this node: one line for each fault,"
        " with its remedy. Ends with 1 if there is any.",
    )
    parser.add_argument("--user", action="append", default=[], help="look at this user, too; may be given again")
    parser.add_argument("--json", action="store_true", help="print a list of {check, cause, remedy, fault}")
    return parser


def node_findings() -> Iterator[Finding]:
    """The same checks that the Prolog makes before each job."""
    settings = Config()
    try:
        settings = config.load()
    except UserError as error:
        yield Finding("configuration", error.what, error.remedy)
    with remembered() as facts:
        around = checks.look_around(settings, facts, os.environ)
        yield from checks.node_checks(settings, around, facts)


def user_findings(name: str) -> Iterator[Finding]:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UserError(f"there is no user {name!r} on this node", "name another one") from None
    nobodys = Job(id=0, restart=0, uid=entry.pw_uid, gid=entry.pw_gid, user=name, node="", names=frozenset())
    yield from checks.user_checks(nobodys, subids.granted(name))
