"""What a tree of cgroups has used, as long as it exists."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from moorage.linux.cgroup import number


@dataclass(frozen=True)
class Usage:
    """CPU time, and the most memory and processes there were at once."""

    cpu_seconds: float
    memory_peak: int
    processes: int

    @classmethod
    def of(cls, tree: Path) -> Self:
        return cls(_cpu_seconds(tree), _most(tree, "memory"), _most(tree, "pids"))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.cpu_seconds:.1f} s of CPU, {self.memory_peak >> 20} MiB, {self.processes} processes at most"


def _cpu_seconds(tree: Path) -> float:
    fields = dict(line.split() for line in (tree / "cpu.stat").read_text().splitlines())
    return int(fields["usage_usec"]) / 1e6


def _most(tree: Path, kind: str) -> int:
    """Linux before 5.19 (memory) and 6.1 (pids) knows only what there is now."""
    return number(tree / f"{kind}.peak") or number(tree / f"{kind}.current") or 0
