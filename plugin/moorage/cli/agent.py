"""`moorage agent`: one task on every node of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.cli.manual import Parser


def main(words: Sequence[str]) -> int:
    if words and words[0] in ("-h", "--help"):
        parser().print_help()
        return 0
    # Only here: a job waits for this, and the help works without a job.
    from moorage.user.agent import agent

    return agent.main(words)


def parser() -> Parser:
    from moorage.cli.manual import ENDED_BADLY, Manual, Parser

    about = """\
Serve a job on one of its nodes.

`moorage run` starts it by srun on every node of the job; nobody needs to type it. It obeys commands on standard input
and answers on standard output, both in JSON. At the end of its input it tears down what the job has on this node."""
    where = "In a step of a job with --k8s, as `moorage run` starts it."
    return Parser(prog="moorage agent", manual=Manual(about, where, codes=((0, "all is torn down"), ENDED_BADLY)))
