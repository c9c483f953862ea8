"""The commands in the pages about installing: taken out of their text, to be typed as they stand.

A block that begins with ```bash lab node is typed on a node by root, ```bash lab admin where Ansible runs, and ```bash
lab user by a user of the cluster. A block that begins with ```bash alone is only to be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# In the order in which they are typed.
PAGES: Final = ("docs/install/by-role.md", "docs/install/upgrade.md")
TYPED: Final = "lab"
PEOPLE: Final = ("admin", "node", "user")

_FENCE: Final = re.compile(r"^```(?P<words>.*)$")
_SECTION: Final = "## "


@dataclass(frozen=True)
class Block:
    """`line` is where its text begins; `section` is the heading above it; `words` follow the fence."""

    line: int
    section: str
    words: tuple[str, ...]
    text: str

    @property
    def is_shell(self) -> bool:
        return self.words[:1] == ("bash",)

    @property
    def typed_by(self) -> str:
        """Empty if it is only to be read."""
        match self.words:
            case ("bash", "lab", who):
                return who
            case _:
                return ""

    def command(self, settings: Mapping[str, str]) -> Sequence[str]:
        """With the names set that the guide leaves to its reader; it ends with the first command that fails."""
        given = [f"{name}={value}" for name, value in settings.items()]
        return ["env", *given, "bash", "-euo", "pipefail", "-c", self.text]


def blocks(text: str) -> Iterator[Block]:
    """All that stands between fences."""
    words: tuple[str, ...] | None = None
    lines: list[str] = []
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if words is None and line.startswith(_SECTION):
            section = line.removeprefix(_SECTION)
        elif fence is None:
            lines.append(line)
        elif words is None:
            words, lines = tuple(fence["words"].split()), []
        else:
            yield Block(number - len(lines), section, words, "\n".join(lines) + "\n")
            words = None


def steps(text: str) -> list[Block]:
    return [block for block in blocks(text) if TYPED in block.words]
