"""`moorage run`: a job's script, with what the job asked for around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.cli.manual import Parser


def main(words: Sequence[str]) -> int:
    # Words behind the script are the script's own.
    if words and words[0] in ("-h", "--help"):
        parser().print_help()
        return 0
    # Only here: a script waits for this, and the help works without a job.
    from moorage.user.run import runner

    return runner.main(words)


def parser() -> Parser:
    from moorage.cli.manual import Manual, Parser
    from moorage.common.errors import FAILED

    about = """\
Prepare what the job asked for with --k8s, run its script, and tear it all down.

Slurm starts it in place of the job's script; nobody needs to type it. Its output on standard error says which phase
of the start takes how long."""
    codes = (
        (0, "the script ended with 0"),
        (FAILED, "the start failed and the script was not run; or the script ended so"),
        ("other", "the script ended so; a signal that ended it ends this, too"),
    )
    made = Parser(
        prog="moorage run",
        usage="moorage run [-h] [--] SCRIPT [ARGUMENT ...]",
        manual=Manual(about, "In a job with --k8s, in its batch task on the first node.", codes=codes),
    )
    made.add_argument("script", metavar="SCRIPT", help="the program to run; PATH is searched for it")
    made.add_argument("argument", metavar="ARGUMENT", nargs="*", help="an argument of the program")
    return made
