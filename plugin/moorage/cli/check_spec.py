"""`moorage check-spec SPEC`: the question that the shim asks when a job is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moorage.common.spec import parse

if TYPE_CHECKING:
    from moorage.cli.manual import Parser


def main(words: Sequence[str]) -> None:
    match words:
        # sbatch waits for this: argparse takes longer to import than all else takes to run.
        case ["--", spec]:
            pass
        case [spec] if not spec.startswith("-"):
            pass
        case _:
            spec = parser().read(words).spec
    parse(spec)


def parser() -> Parser:
    from moorage.cli.manual import WRONG_WORDS, Manual, Parser

    about = """\
Check a --k8s= value, and say what is wrong with it and what to write.

sbatch calls it for every job that is submitted with --k8s."""
    examples = (
        ("moorage check-spec cluster=none,uplink=pasta", "print nothing: the value is right"),
        ("moorage check-spec clutser=none", "print what was probably meant, and end with 2"),
    )
    codes = ((0, "the value is right"), WRONG_WORDS)
    manual = Manual(about, "Anywhere, as any user: it looks at the value alone.", examples, codes)
    made = Parser(prog="moorage check-spec", manual=manual)
    made.add_argument("spec", metavar="SPEC", help="the value that follows --k8s=; put -- in front if it begins with -")
    return made
