"""What goes into running guests: batch scripts and our Python package."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Sequence
from pathlib import Path

from moorage.errors import UserError

from .shell import Shell

PLUGIN = Path(__file__).resolve().parents[3] / "plugin"


def submit(shell: Shell, script: Path, user: str, options: Sequence[str]) -> int:
    """Submit `script` from the user's home, print its output as it comes, and return the job's exit code."""
    if not script.is_file():
        raise UserError(f"there is no file {script}", "name a batch script")
    target = f"/home/{user}/{script.name}"
    shell.put(script, target, mode="755", owner=user)
    return shell.attach(
        shlex.join(["runuser", "--login", user, "--command", shlex.join(["lab-submit", *options, target])])
    )


def install_package(shell: Shell, target: str) -> None:
    """Replace the package at `target` by the one in this tree."""
    shell.run(["sh", "-c", 'rm -rf "$1/moorage" && mkdir -p "$1" && tar -x -C "$1"', "sh", target], input=package())


def package() -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(PLUGIN / "moorage", "moorage", filter=lambda member: None if "__pycache__" in member.name else member)
    return archive.getvalue()
