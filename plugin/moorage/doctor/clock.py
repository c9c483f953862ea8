"""Checks of the node's clock: certificates of clusters are valid from the moment at which they are made."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from moorage.linux import libc
from moorage.node.finding import Finding
from moorage.node.hostfiles import Node

# The clock cannot be earlier than the installed files. Archives without time zones can be off by a day.
TOLERANCE: Final = 24 * 3600.0
KEEPERS: Final = ("chrony.service", "chronyd.service", "ntp.service", "ntpd.service", "ntpsec.service")
ENABLED: Final = (
    *(f"/etc/systemd/system/multi-user.target.wants/{name}" for name in KEEPERS),
    "/etc/systemd/system/sysinit.target.wants/systemd-timesyncd.service",
)
# Read at import: the process may later become a user who cannot enter this directory.
INSTALLED: Final = Path(__file__).stat().st_mtime
_TIME_ERROR: Final = 5


def check(node: Node) -> Iterator[Finding]:
    now = time.time()
    if now < INSTALLED - TOLERANCE:
        cause = f"the clock says {_day(now)}, and Moorage was installed on {_day(INSTALLED)}"
        yield Finding(
            "clock",
            cause,
            "set it, and let a service keep it: certificates would not be valid elsewhere",
            code="M-CLOCK-1",
        )
        return
    keeps = any(node.path(name).is_symlink() or node.has(name) for name in ENABLED)
    if keeps and not in_step():
        cause = "this node's clock is not synchronized yet"
        yield Finding(
            "clock",
            cause,
            "see timedatectl: clusters over several nodes need clocks that agree",
            kind="advice",
            code="M-CLOCK-2",
        )


def in_step() -> bool:
    """Whether the kernel has been told that its clock is right; also true if the kernel refuses to answer."""
    try:
        return libc.clock_state() != _TIME_ERROR
    except OSError:
        return True


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))
