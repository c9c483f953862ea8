"""Many commands in a guest at the price of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .shell import Shell

PROGRAM = Path(__file__).resolve().parents[1] / "in_guest" / "many_commands.py"
LIMIT = 600.0


@dataclass(frozen=True)
class Ended:
    """The end of one command."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def lines(self) -> list[str]:
        """All it said."""
        return (self.stdout + self.stderr).splitlines()


def run_many(shell: Shell, commands: Sequence[Sequence[str]], user: str = "root") -> list[Ended]:
    """The end of each command, in the order of the commands; some run at the same time."""
    argv = ["python3", "-c", PROGRAM.read_text()]
    wanted = json.dumps([list(words) for words in commands]).encode()
    ends = json.loads(shell.run(argv, user=user, input=wanted, limit=LIMIT).stdout)
    return [Ended(**end) for end in ends]
