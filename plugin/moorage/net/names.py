"""How a job's links and tables of rules are called, so that all of them can be found by its id alone."""

from __future__ import annotations

import re
from typing import Final

# With the largest job id and one letter this is as long as the kernel lets a link's name be.
_LINK: Final = re.compile(r"moor([1-9][0-9]{0,9})[a-z]")


def link(job: int, part: str) -> str:
    return f"moor{job}{part}"


def table(job: int) -> str:
    return f"moorage-{job}"


def job_of(link_name: str) -> int | None:
    """Whose link this is, if it is a job's."""
    match = _LINK.fullmatch(link_name)
    return int(match[1]) if match else None
