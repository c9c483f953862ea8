"""`moorage help`: the list of verbs, or the help of one of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module

from moorage import __doc__ as summary
from moorage import __version__
from moorage.cli import VERBS
from moorage.cli.manual import Manual, Parser, closest
from moorage.common.errors import MISUSED, UsageError

ABOUT = "List the verbs of `moorage`, or explain one of them."
USAGE = "usage: moorage VERB [OPTION...] [ARGUMENT...]"


def main(words: Sequence[str]) -> None:
    wanted: list[str] = parser().read(words).verb
    if wanted:
        explained(wanted).print_help()
    else:
        print(listing())


def parser() -> Parser:
    examples = (
        ("moorage help doctor", "explain `moorage doctor`"),
        ("moorage help image add", "explain `moorage image add`"),
    )
    made = Parser(prog="moorage help", manual=Manual(ABOUT, "Anywhere, as any user.", examples))
    made.add_argument("verb", metavar="VERB", nargs="*", help="the verb, and for some verbs the verb below it")
    return made


def without_verb(words: Sequence[str]) -> int:
    """Answer a command line that begins with no verb."""
    match words:
        case []:
            print(f"{USAGE}\nmoorage: there is nothing to do: `moorage help` lists the verbs", file=sys.stderr)
            return MISUSED
        case ["--version", *_]:
            print(f"moorage {__version__}")
        case ["-h" | "--help", *_]:
            print(listing())
        case [word, *_]:
            raise unknown(word, list(VERBS))
    return 0


def listing() -> str:
    return "\n".join(
        [
            USAGE,
            "       moorage help VERB",
            "       moorage --version",
            "",
            *filter(None, summary.splitlines()),
            *_groups(),
        ]
    )


def _groups() -> Iterator[str]:
    width = max(map(len, VERBS))
    for group in dict.fromkeys(verb.group for verb in VERBS.values()):
        yield f"\n{group}:"
        yield from (f"  {name:{width}}  {verb.summary}" for name, verb in VERBS.items() if verb.group == group)


def explained(words: Sequence[str]) -> Parser:
    """The parser of this verb, or of a verb below it."""
    first, *below = words
    if first not in VERBS:
        raise unknown(first, list(VERBS))
    found: Parser = import_module(VERBS[first].module).parser()
    for word in below:
        if word not in found.verbs:
            raise unknown(word, list(found.verbs), found.prog)
        found = found.verbs[word]
    return found


def unknown(word: str, known: Sequence[str], where: str = "") -> UsageError:
    close = closest(word, known)
    what = f"there is no verb {word!r}" + (f" of `{where}`" if where else "")
    return UsageError(what, f"did you mean {close}?" if close else "`moorage help` lists the verbs", code="M-COMMAND-6")
