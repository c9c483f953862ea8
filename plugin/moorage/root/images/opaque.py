"""Marks opaque directories of layers also for overlays of users. An opaque directory hides those in lower layers.

Root's Podman marks them with an attribute that an overlay in a user namespace ignores: files that an upper layer has
removed would be there again (seen with Podman 4.3 and 5.4).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOTS: Final = "trusted.overlay.opaque"
USERS: Final = "user.overlay.opaque"
YES: Final = b"y"


def mark(layer: Path) -> int:
    """Mark all opaque directories of a layer for users; how many were not marked before."""
    return sum(_marked(directory) for directory in directories(layer))


def directories(top: Path) -> Iterator[Path]:
    """`top` and all directories below it. Links are not followed."""
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        yield directory
        with os.scandir(directory) as entries:
            waiting += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def attribute(path: Path, name: str) -> bytes:
    """The value of an extended attribute; empty if there is none."""
    if name not in os.listxattr(path, follow_symlinks=False):
        return b""
    return os.getxattr(path, name, follow_symlinks=False)


def _marked(directory: Path) -> bool:
    if attribute(directory, ROOTS) != YES or attribute(directory, USERS) == YES:
        return False
    os.setxattr(directory, USERS, YES, follow_symlinks=False)
    return True
