"""Earlier releases, out of the project's history."""

from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path

from moorage.common.command import CommandFailed, run

from .installation import PARTS, SOURCE

# The last tree in which all modules lay in one folder. Its jobs are ended by the names of modules that it knows.
BEFORE_THE_MOVE = "72a13220917ef6dc9b70c78fc5907e3382ed1b9d"


def has(commit: str) -> bool:
    """Whether this checkout has the commit: a shallow one or an archive has not."""
    try:
        run(_git("cat-file", "-e", f"{commit}^{{commit}}"))
    except CommandFailed:
        return False
    return True


def unpacked(commit: str, place: Path) -> Path:
    """The product as it was at that commit."""
    archive = place.with_suffix(".tar")
    run(_git("archive", f"--output={archive}", commit, *PARTS))
    with tarfile.open(fileobj=BytesIO(archive.read_bytes())) as tar:
        tar.extractall(place, filter="data")
    archive.unlink()
    return place


def _git(*words: str) -> list[str]:
    # Also where root looks at another user's checkout.
    return ["git", "-c", f"safe.directory={SOURCE}", "-C", str(SOURCE), *words]
