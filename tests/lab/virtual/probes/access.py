"""Access of a user to files and sockets of others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..guest.shell import Shell

PROGRAM = Path(__file__).resolve().parents[1] / "in_guest" / "access.py"
DEEPEST = 4


def successes(shell: Shell, user: str, paths: Sequence[str]) -> dict[str, set[str]]:
    """For each path where anything succeeded: read, write, create, enter, follow, give_away, connect."""
    argv = ["python3", "-c", PROGRAM.read_text()]
    said = shell.run(argv, user=user, input=json.dumps(list(paths)).encode()).stdout
    return {path: set(ways) for path, ways in json.loads(said).items() if ways}


def places(shell: Shell, *tops: str, deepest: int = DEEPEST) -> list[str]:
    """All that root finds there, as deep as matters."""
    said = shell.output("find", *tops, "-maxdepth", str(deepest), "-print0")
    return [place for place in said.split("\0") if place]
