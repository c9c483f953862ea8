"""`moorage explain CODE`: why a line was printed, and what to do about it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from moorage.cli.manual import Manual, Parser
from moorage.common.codes import Area, Catalogue, Entry
from moorage.common.errors import UsageError

ABOUT: Final = """\
Explain a line of Moorage by the code at its end, like M-SHIM-2: why it was printed, and what to do about it.

With an area, like SHIM, list its lines; without CODE, list the areas."""
WHERE: Final = "Anywhere."
EXAMPLES: Final = (
    ("moorage explain M-SHIM-2", "one line"),
    ("moorage explain SHIM", "the lines of an area"),
    ("moorage explain", "the areas"),
)
WIDTH: Final = 100
FIRST: Final = "M-"


def main(words: Sequence[str]) -> None:
    print(explain(Catalogue.load(), parser().read(words).code))


def parser() -> Parser:
    made = Parser(prog="moorage explain", manual=Manual(ABOUT, WHERE, EXAMPLES))
    made.add_argument("code", metavar="CODE", nargs="?", help="a code, or an area, in capital or small letters")
    return made


def explain(catalogue: Catalogue, wanted: str | None) -> str:
    if wanted is None:
        return "\n".join(f"{FIRST}{area.name:10} {area.title}" for area in catalogue.areas.values())
    code = wanted.strip("[]").upper()
    if area := catalogue.areas.get(code.removeprefix(FIRST)):
        return _listed(area)
    code = FIRST + code.removeprefix(FIRST)
    codes = {entry.code: entry for entry in catalogue}
    if code not in codes:
        raise _unknown(code, [*codes, *(FIRST + name for name in catalogue.areas)])
    return _shown(codes[code])


def _listed(area: Area) -> str:
    return "\n".join([area.title, "", *(f"{code:14} {entry.line}" for code, entry in area.entries.items())])


def _shown(entry: Entry) -> str:
    parts = (f"{entry.code}: {entry.line}", f"Why: {entry.why}", f"What to do: {entry.do}")
    return "\n\n".join(textwrap.fill(part, WIDTH, break_long_words=False, break_on_hyphens=False) for part in parts)


def _unknown(code: str, known: Sequence[str]) -> UsageError:
    nearest = get_close_matches(code, known, n=1, cutoff=0.5)
    remedy = f"the nearest is {nearest[0]}" if nearest else "`moorage explain` lists the areas"
    return UsageError(f"there is no code {code[:40]}", remedy, code="M-CODE-1")
