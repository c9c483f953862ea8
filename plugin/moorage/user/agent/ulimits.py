"""The resource limits of the user: they are raised as far as possible, and checked."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from moorage.common.errors import UserError

MIB: Final = 1 << 20
# Some programs close every file that may be open, which takes minutes with a limit of a thousand million files.
MOST_FILES: Final = 1 << 20


@dataclass(frozen=True)
class Demand:
    least: int
    letter: str
    what: str


DEMANDS: Final[Mapping[int, Demand]] = {
    resource.RLIMIT_NOFILE: Demand(1024, "n", "open files"),
    resource.RLIMIT_NPROC: Demand(256, "u", "processes of a user"),
    # Podman and its runtime are written in Go, and reserve far more than they use.
    resource.RLIMIT_AS: Demand(4096 * MIB, "v", "bytes of address space"),
    resource.RLIMIT_FSIZE: Demand(1024 * MIB, "f", "bytes in a file"),
}


def raised() -> None:
    """Raise every limit to its maximum, for all programs started from here; raise a UserError if one is too low."""
    for kind in DEMANDS:
        _, most = resource.getrlimit(kind)
        # -1 means unlimited.
        soft = most if kind != resource.RLIMIT_NOFILE or 0 <= most < MOST_FILES else MOST_FILES
        resource.setrlimit(kind, (soft, most))
    for complaint in complaints({kind: resource.getrlimit(kind)[1] for kind in DEMANDS}):
        raise complaint


def complaints(hard: Mapping[int, int]) -> Iterator[UserError]:
    for kind, demand in DEMANDS.items():
        if hard[kind] != resource.RLIM_INFINITY and hard[kind] < demand.least:
            yield UserError(
                f"`ulimit -H{demand.letter}` allows {hard[kind]} {demand.what} where {demand.least} are needed",
                "ask the site to raise that limit of slurmd",
                code="M-KERNEL-12",
            )
