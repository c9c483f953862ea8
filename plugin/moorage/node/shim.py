"""Checks of the shim: Slurm loads it, and it was built for this Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from moorage.common.errors import UserError

NAME: Final = "moorage.so"
MOST_BYTES: Final = 1 << 20
DEEPEST_INCLUDE: Final = 8

# Slurm loads a SPANK plug-in only if year and month of the release are equal; the third number may differ (24.11).
_MARKER: Final = re.compile(rb"moorage-shim ([0-9]{2}\.[0-9]{2})\0")
_RELEASE: Final = re.compile(r"\b([0-9]{2}\.[0-9]{2})\b")


def check(plugstack: str, slurm: str) -> UserError | None:
    """Why the Slurm of this version would not load the shim by `plugstack`; None if it would."""
    shim = place(plugstack)
    if shim is None:
        return UserError(
            f"plugstack.conf has no line for {NAME}",
            f"add 'required PATH/{NAME} moorage=PATH/moorage'",
            code="M-SHIM-7",
        )
    if not shim.is_absolute():
        return UserError(f"plugstack.conf names the shim as {shim}", "write its absolute path there", code="M-SHIM-8")
    if not shim.is_file():
        return UserError(
            f"the shim {shim} is missing on this node", "build and install it: plugin/spank/Makefile", code="M-SHIM-9"
        )
    return _misfit(shim, marker(shim), release(slurm))


def _misfit(shim: Path, built_for: str | None, running: str | None) -> UserError | None:
    if running is None:
        return UserError("the release of this node's Slurm is unknown", "see whether slurmd -V works", code="M-SHIM-10")
    if built_for is None:
        return UserError(
            f"{shim} is not Moorage's shim", "build and install it: plugin/spank/Makefile", code="M-SHIM-11"
        )
    if built_for != running:
        what = f"{shim} was built for Slurm {built_for} and this node runs {running}"
        return UserError(what, f"build it again with the headers of Slurm {running}", code="M-SHIM-12")
    return None


def marker(shim: Path) -> str | None:
    """The Slurm release that the shim was built for; None if the file is something else."""
    with shim.open("rb") as file:
        found = _MARKER.search(file.read(MOST_BYTES))
    return found[1].decode() if found else None


def release(version: str) -> str | None:
    """The release in the output of -V: 24.11 of "slurm-wlm 24.11.5"."""
    found = _RELEASE.search(version)
    return found[1] if found else None


def stack(configuration: Path) -> str:
    """plugstack.conf with the files that it includes; empty without the file."""
    return "\n".join(_lines(configuration, DEEPEST_INCLUDE))


def _lines(configuration: Path, depth: int) -> Iterator[str]:
    if not configuration.exists() or not depth:
        return
    for line in configuration.read_text(errors="replace").splitlines():
        match line.partition("#")[0].split():
            case ["include", pattern, *_]:
                for included in _glob(configuration.parent, pattern):
                    yield from _lines(included, depth - 1)
            case words:
                yield " ".join(words)


def _glob(base: Path, pattern: str) -> list[Path]:
    absolute = base / pattern
    return sorted(Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor))))


def place(plugstack: str) -> Path | None:
    """The path from which Slurm would load the shim."""
    for line in plugstack.splitlines():
        match line.partition("#")[0].split():
            case ["required" | "optional", path, *_] if Path(path).name == NAME:
                return Path(path)
    return None
