"""How every command explains itself: one parser that teaches, and one line for a wrong word."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from moorage.common.errors import FAILED, MISUSED

DONE: Final = (0, "done")
ENDED_BADLY: Final = (FAILED, "failed; a line on standard error says why")
WRONG_WORDS: Final = (MISUSED, "the command line is wrong; nothing was done")
USUAL: Final = (DONE, ENDED_BADLY, WRONG_WORDS)

IN_A_JOB: Final = "In a job with --k8s: in its script, or in a step (`srun --jobid=JOBID --overlap --pty bash`)."
ON_A_NODE: Final = "On a compute node, as any user."
AS_ROOT: Final = "On a compute node, as root."


@dataclass(frozen=True)
class Manual:
    """What a command's help says beside its options.

    An example is a command and what it does; an exit code is a number and its meaning.
    """

    about: str
    where: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    codes: tuple[tuple[int | str, str], ...] = USUAL

    def closing(self) -> str:
        """The text below the options."""
        examples = [f"  {command}\n      {meaning}" for command, meaning in self.examples]
        codes = [f"  {code}  {meaning}" for code, meaning in self.codes]
        parts = [("where to run it", [f"  {self.where}"]), ("examples", examples), ("exit codes", codes)]
        return "\n\n".join("\n".join([f"{title}:", *lines]) for title, lines in parts if lines)


class Parser(argparse.ArgumentParser):
    """A parser with a manual. Help, man pages, completion and the reference page are made from it."""

    def __init__(self, *, prog: str, manual: Manual, usage: str | None = None, **more: Any) -> None:  # noqa: ANN401
        # argparse hands further settings on to the parsers of verbs: `color` from Python 3.14 on.
        super().__init__(
            prog=prog,
            usage=usage,
            description=manual.about,
            epilog=manual.closing(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **more,
        )
        self.manual = manual
        self.summary = ""
        self.verbs: dict[str, Parser] = {}
        self._verbs_action: Any = None

    def verb(self, name: str, summary: str, manual: Manual) -> Parser:
        """Add a verb below this command. It runs where this command runs, unless its manual says otherwise."""
        if self._verbs_action is None:
            self._verbs_action = self.add_subparsers(metavar="VERB", title="verbs", required=True)
        manual = replace(manual, where=manual.where or self.manual.where)
        added: Parser = self._verbs_action.add_parser(name, help=summary, manual=manual)
        added.summary = summary
        self.verbs[name] = added
        return added

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments in `words`; the program ends here if a word is unknown."""
        found, unknown = self.parse_known_args(list(words))
        if unknown:
            self.error(self._unknown(unknown[0]))
        return found

    def error(self, message: str) -> NoReturn:
        """End with one line, where argparse would print its usage first."""
        program, _, verb = self.prog.partition(" ")
        self.exit(MISUSED, f"{program}: {verb}: {message}: see `{program} help {verb}`\n")

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word!r} is one word too many"
        close = closest(word.partition("=")[0], sorted(self._options()))
        return f"there is no option {word}" + (f": did you mean {close}?" if close else "")

    def _options(self) -> set[str]:
        return {*self._option_string_actions, *(name for verb in self.verbs.values() for name in verb._options())}


def closest(word: str, known: Sequence[str]) -> str:
    """The known word that `word` was probably meant to be; empty if none is near."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, known, n=1)), "")
