"""How much memory each guest gets, and whether this machine can carry them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.common.errors import UsageError, UserError

MOST_NODES = 4
OVERHEAD = 300  # QEMU itself, in MB, seen with 10.0


@dataclass(frozen=True)
class Share:
    """Memory of one guest in MB: its own, and the emulator's buffer of translated code."""

    guest: int
    translation: int

    def host(self, emulated: bool) -> int:
        return self.guest + OVERHEAD + (self.translation if emulated else 0)


# A control plane translates so much code that half this buffer overflows, and everything is translated again.
CONTROL_PLANE = Share(6000, 2000)
# A job on it has to be large enough for a node of a cluster, and Slurm keeps an eighth for the system.
WORKER = Share(4000, 1000)
SLURM_ONLY_FIRST = Share(2500, 700)
SLURM_ONLY = Share(1800, 500)


def shares(nodes: int) -> list[Share]:
    """By role: up to three nodes carry Kubernetes, four are for Slurm and Podman alone."""
    if not 1 <= nodes <= MOST_NODES:
        raise UsageError(f"a lab has 1 to {MOST_NODES} nodes, not {nodes}", "choose with --nodes")
    if nodes == MOST_NODES:
        return [SLURM_ONLY_FIRST] + [SLURM_ONLY] * (nodes - 1)
    return [CONTROL_PLANE] + [WORKER] * (nodes - 1)


def check(wanted: Sequence[Share], emulated: bool, available: int | None = None) -> None:
    """Refuse before anything is started."""
    free = available_megabytes() if available is None else available
    needed = sum(share.host(emulated) for share in wanted)
    if needed > free:
        raise UserError(
            f"{len(wanted)} guests need {needed} MB of memory, {free} MB are available",
            "ask for fewer with --nodes, or stop what uses the rest",
        )


def available_megabytes() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) // 1024
