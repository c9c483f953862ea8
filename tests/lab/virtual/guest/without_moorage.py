"""A guest as if Moorage were not installed: its hooks and its plug-in are put aside, and come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .shell import Shell

SLURM = "/etc/slurm"
PLUGSTACK = "plugstack.conf"
HOOKS = ("prolog.d/50-moorage", "epilog.d/50-moorage")
# Not beside the hooks: slurmd runs every file in there.
ASIDE = "/root/aside"
# There is no other plug-in in the lab than ours.
_AWAY = f"""
mkdir -p {ASIDE}/prolog.d {ASIDE}/epilog.d
for file in {PLUGSTACK} {" ".join(HOOKS)}; do mv "{SLURM}/$file" "{ASIDE}/$file"; done
touch {SLURM}/{PLUGSTACK}
"""
_BACK = f"""
for file in {PLUGSTACK} {" ".join(HOOKS)}; do mv "{ASIDE}/$file" "{SLURM}/$file"; done
"""


@contextmanager
def without_moorage(shell: Shell) -> Iterator[None]:
    """For jobs that start in the block; there must be none that Moorage has prepared."""
    shell.run(["sh", "-euc", _AWAY])
    try:
        yield
    finally:
        shell.run(["sh", "-euc", _BACK])
