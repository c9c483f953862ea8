"""Files for running guests: batch scripts and our Python package."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Sequence
from pathlib import Path

from moorage.common.errors import UserError

from .shell import Shell

PLUGIN = Path(__file__).resolve().parents[4] / "plugin"


def submit(shell: Shell, script: Path, user: str, options: Sequence[str]) -> int:
    """Submit `script` from the user's home, print its output as it comes, and return the job's exit code."""
    if not script.is_file():
        raise UserError(f"there is no file {script}", "name a batch script")
    target = f"/home/{user}/{script.name}"
    shell.put(script, target, mode="755", owner=user)
    return shell.attach(
        shlex.join(["runuser", "--login", user, "--command", shlex.join(["lab-submit", *options, target])])
    )


# Compiled at once: users could not keep what their Python compiles, and would wait for it in each job.
_REPLACE = """
cd /opt/moorage/current/lib/python3*/site-packages
rm -rf moorage
tar -x
/opt/moorage/bin/python3 -I -m compileall -q moorage
"""


def install_package(shell: Shell) -> None:
    """Replace the package that the role has installed by the one in this tree."""
    shell.run(["sh", "-euc", _REPLACE], input=package())


def package() -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(PLUGIN / "moorage", "moorage", filter=lambda member: None if "__pycache__" in member.name else member)
    return archive.getvalue()
