"""The lab's stand-in device, described to Moorage as a site describes its hardware."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .shell import Shell

HERE = Path(__file__).resolve().parents[2]
FRAGMENT = HERE / "features.d/lab.yaml"
DIRECTORY = "/etc/moorage/features.d"
VENDORS = HERE / "cdi/lab.yaml"
OF_VENDORS = HERE / "cdi/features.d/lab.yaml"
CDI = "/etc/cdi"
# What Slurm is asked for, and what a node with it is labelled with.
GRES = "--gres=lab:1"
LABEL = "moorage/gres-lab"
OPENED = "1+0 records in"
REFUSED = "Operation not permitted"
ABSENT = "No such file or directory"


@contextmanager
def described(shell: Shell, fragment: Path = FRAGMENT) -> Iterator[None]:
    """As long as the block lasts, on this node."""
    shell.put(fragment, f"{DIRECTORY}/{fragment.name}")
    try:
        yield
    finally:
        shell.run(["rm", "-rf", DIRECTORY])


@contextmanager
def described_by_its_vendor(shell: Shell) -> Iterator[None]:
    """The same, by CDI."""
    shell.put(VENDORS, f"{CDI}/{VENDORS.name}")
    try:
        with described(shell, OF_VENDORS):
            yield
    finally:
        shell.run(["rm", "-rf", CDI])
