"""Names of a job's links and tables of rules: all of them can be found by the job's id alone."""

from __future__ import annotations

import re
import socket
from typing import Final

# With the largest job id and one letter, the name has the greatest length that the kernel allows.
_LINK: Final = re.compile(r"moor([1-9][0-9]{0,9})[a-z]")


def link(job: int, part: str) -> str:
    return f"moor{job}{part}"


def table(job: int) -> str:
    return f"moorage-{job}"


def jobs() -> list[int]:
    """The jobs that have a link on this node."""
    return sorted({job for _, name in socket.if_nameindex() if (job := job_of(name))})


def links_of(job: int) -> list[str]:
    """The links of a job on this node. Without pyroute2: its import takes longer than the hooks of most jobs."""
    return [name for _, name in socket.if_nameindex() if job_of(name) == job]


def job_of(link_name: str) -> int | None:
    """The job that a link with this name belongs to, if there is one."""
    match = _LINK.fullmatch(link_name)
    return int(match[1]) if match else None
