"""How a job's links and tables of rules are called, so that all of them can be found by its id alone."""

from __future__ import annotations

import re
import socket
from typing import Final

# With the largest job id and one letter this is as long as the kernel lets a link's name be.
_LINK: Final = re.compile(r"moor([1-9][0-9]{0,9})[a-z]")


def link(job: int, part: str) -> str:
    return f"moor{job}{part}"


def table(job: int) -> str:
    return f"moorage-{job}"


def jobs() -> list[int]:
    """Those that have a link on this node."""
    return sorted({job for _, name in socket.if_nameindex() if (job := job_of(name))})


def links_of(job: int) -> list[str]:
    """Those that are there; asked without pyroute2, for it takes longer to import than most jobs' hooks have."""
    return [name for _, name in socket.if_nameindex() if job_of(name) == job]


def job_of(link_name: str) -> int | None:
    """Whose link this is, if it is a job's."""
    match = _LINK.fullmatch(link_name)
    return int(match[1]) if match else None
