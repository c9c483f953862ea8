"""Trees of a user's, and their removal."""

from __future__ import annotations

import os
from pathlib import Path

from moorage.common.deadline import Deadline
from moorage.linux.beneath import opened
from moorage.root.cleanup.remove_tree import remove

USER = 12345
LIMIT = 60.0


def removed(tree: Path, limit: float = LIMIT) -> dict[str, str]:
    with opened(tree.parent) as parent:
        return remove(parent, tree.name, Deadline(limit))


def make_deep(top: Path, name: str, depth: int) -> None:
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
