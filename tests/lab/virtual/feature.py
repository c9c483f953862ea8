"""The lab's stand-in device, described to Moorage as a site describes its hardware."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .shell import Shell

FRAGMENT = Path(__file__).resolve().parents[1] / "features.d/lab.yaml"
DIRECTORY = "/etc/moorage/features.d"
# What Slurm is asked for, and what a node with it is labelled with.
GRES = "--gres=lab:1"
LABEL = "moorage/gres-lab"
OPENED = "1+0 records in"
REFUSED = "Operation not permitted"
ABSENT = "No such file or directory"


@contextmanager
def described(shell: Shell) -> Iterator[None]:
    """As long as the block lasts, on this node."""
    shell.put(FRAGMENT, f"{DIRECTORY}/{FRAGMENT.name}")
    try:
        yield
    finally:
        shell.run(["rm", "-rf", DIRECTORY])
