"""The files by which this node describes itself. Tests use another root directory."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Node:
    root: Path = Path("/")

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def has(self, name: str) -> bool:
        return self.path(name).exists()

    def text(self, name: str) -> str:
        """The content of the file; empty if it cannot be read."""
        with suppress(OSError):
            return self.path(name).read_text(errors="replace")
        return ""

    def conceals(self, name: str) -> bool:
        """Whether the file exists and this process may not read it."""
        try:
            self.path(name).open().close()
        except OSError as error:
            return isinstance(error, PermissionError)
        return False

    def number(self, name: str) -> int | None:
        text = self.text(name).strip()
        return int(text) if text.isdecimal() else None


# The node on which this process runs.
HERE: Final = Node()
