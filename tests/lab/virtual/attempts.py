"""Many commands in a guest at the price of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .shell import Shell

WITNESS = Path(__file__).resolve().parents[1] / "witness" / "attempts.py"
LIMIT = 600.0


@dataclass(frozen=True)
class Attempt:
    """What became of one of them."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def lines(self) -> list[str]:
        """All it said."""
        return (self.stdout + self.stderr).splitlines()


def attempts(shell: Shell, commands: Sequence[Sequence[str]], user: str = "root") -> list[Attempt]:
    """Each command's end, in their order; some of them run at the same time."""
    argv = ["python3", "-c", WITNESS.read_text()]
    wanted = json.dumps([list(words) for words in commands]).encode()
    ends = json.loads(shell.run(argv, user=user, input=wanted, limit=LIMIT).stdout)
    return [Attempt(**end) for end in ends]
