"""Trees to remove, on two kinds of file systems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.command import run
from support.namespaces import MOUNT, fresh
from support.trees import USER


@pytest.fixture(params=["tmpfs", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory of root's that others can enter, on the one kind of file system and the other."""
    with fresh(MOUNT):
        for directory in tmp_path.parents[:2]:
            directory.chmod(0o755)
        if request.param == "tmpfs":
            run(["mount", "-t", "tmpfs", "tmpfs", tmp_path])
        tmp_path.chmod(0o755)
        yield tmp_path


@pytest.fixture
def tree(place: Path) -> Path:
    tree = place / "tree"
    tree.mkdir()
    os.chown(tree, USER, USER)
    return tree
