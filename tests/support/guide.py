"""The table of error lines in the reference: what a line of a check looks like, and whether it is in there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs/reference/lines.md"
TITLE = "## What is wrong with a node\n"
# What differs.
ANYTHING = "…"


@cache
def section() -> str:
    return GUIDE.read_text().partition(TITLE)[2].partition("\n## ")[0]


@cache
def lines() -> list[str]:
    """As they stand in the first column."""
    rows = [row for row in section().splitlines() if row.startswith("| `")]
    return [line for row in rows for line in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def explained(check: str, cause: str) -> bool:
    said = f"{check}: {cause}"
    return any(re.fullmatch(".+".join(map(re.escape, line.split(ANYTHING))), said) for line in lines())
