"""Programs that run natively in the tree of a guest: what would cost minutes in an emulated one costs seconds here."""

from __future__ import annotations

import shutil
from pathlib import Path

from moorage.common.command import run

from .tools import ENTER

LIMIT = 900.0


def run_in(tree: Path, script: Path, *words: str, log: Path) -> None:
    """Run `script` as root of `tree`; it sees no network and no processes of this machine, and leaves none behind."""
    inside = tree / script.name
    shutil.copy(script, inside)
    apart = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--"]
    run([*apart, ENTER, tree, "/", "--", f"/{script.name}", *words], env={"HOME": "/root"}, limit=LIMIT, log=log)
    inside.unlink()
