"""Facts that a job's script finds for a test: `fact NAME COMMAND...` in the script becomes a line of its output."""

from __future__ import annotations

from dataclasses import dataclass

# Put before the script. What the command says comes back in one line, with its exit code.
SHELL = r"""
fact() {
    local said code=0
    said=$("${@:2}" 2>&1) || code=$?
    printf '@%s %d %s\n' "$1" "$code" "${said//$'\n'/$'\x1f'}"
}
"""


@dataclass(frozen=True)
class Fact:
    code: int
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def facts(output: str) -> dict[str, Fact]:
    """By name, from a job's output."""
    told = (line[1:].split(" ") for line in output.splitlines() if line.startswith("@"))
    return {name: Fact(int(code), " ".join(said).replace("\x1f", "\n").strip()) for name, code, *said in told}


def others(output: str) -> list[str]:
    """The other lines of the output, which are no facts."""
    return [line for line in output.splitlines() if not line.startswith("@")]
