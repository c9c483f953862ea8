"""`moorage sweep`: clear up after jobs for which nobody answers any more, as after a power cut."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from moorage.common.deadline import Deadline
from moorage.common.errors import UserError
from moorage.root import journal
from moorage.root.records import record

if TYPE_CHECKING:
    from argparse import ArgumentParser
from moorage.root.cleanup.sweep import sweep

LIMIT: Final = 600.0


def main(words: Sequence[str]) -> int:
    arguments = parser().parse_args(words)
    if os.geteuid() != 0:
        raise UserError("only root can sweep a node", "run it with sudo")
    code = 0
    for found in sweep(Deadline(LIMIT), act=arguments.now):
        print(found)
        if found.touched:
            journal.log(str(found), phase="sweep", job=found.job)
        code |= any(left.ours for left in found.left)
    if arguments.now:
        # The Epilog sweeps, too, and knows without the configuration where the site wants that.
        from moorage.node.config import load

        record.publish(load.examine()[0].metrics.directory)
    return code


def parser() -> ArgumentParser:
    # The Epilog sweeps, too, and has no use for it.
    from argparse import ArgumentParser

    described = ArgumentParser(prog="moorage sweep", description="Clear up after jobs that nobody answers for.")
    described.add_argument("--now", action="store_true", help="do it, instead of saying what would be done")
    return described
