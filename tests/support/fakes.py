"""An executable that does nothing but note how it was called."""

from __future__ import annotations

import shlex
from pathlib import Path

_SCRIPT = """\
#!/bin/sh
printf '%s\\0' "$#" "$@" >>{calls}
printf %s {stdout}
printf %s {stderr} >&2
exit {code}
"""


class FakeCommand:
    """A fake program called `name` in `directory`; `calls` holds the arguments of each call, in order."""

    def __init__(self, directory: Path, name: str, stdout: str = "", stderr: str = "", code: int = 0) -> None:
        self.path = directory / name
        self._calls = directory / f"{name}.calls"
        words = {"calls": str(self._calls), "stdout": stdout, "stderr": stderr}
        self.path.write_text(_SCRIPT.format(code=code, **{key: shlex.quote(word) for key, word in words.items()}))
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        if not self._calls.exists():
            return []
        words = iter(self._calls.read_bytes().decode().split("\0")[:-1])
        return [[next(words) for _ in range(int(count))] for count in words]
