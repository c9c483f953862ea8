"""Which processor does the work of a host, where hosts are network namespaces of one machine.

Left alone, who sends does all of it, as far as into the receiver's socket: a machine is faster to itself than to any
other, and each link on the way counts twice. Between real hosts, each one's work is its own.
"""

from __future__ import annotations

import os
from typing import Final

from moorage.common.command import run

# What /sys shows of links depends on who has mounted it.
_HAND_OVER: Final = """
mount -t sysfs sysfs /sys
for queue in "/sys/class/net/$1/queues"/rx-*; do echo "$2" >"$queue/rps_cpus"; done
"""
_GROUP: Final = 32


def pair() -> tuple[int, int]:
    """For a host that asks and one that answers, the same throughout; with a single one they share it."""
    here = sorted(os.sched_getaffinity(0))
    return here[0], here[1 % len(here)]


def receives(processor: int, link: str) -> None:
    """Have it do what comes in by this link of the network namespace that we are in."""
    run(["unshare", "--mount", "sh", "-euc", _HAND_OVER, "sh", link, mask(processor)])


def mask(processor: int) -> str:
    """As the kernel reads sets of processors: hexadecimal, 32 of them in a group, the last ones first."""
    groups, place = divmod(processor, _GROUP)
    return ",".join([f"{1 << place:08x}", *["00000000"] * groups])
