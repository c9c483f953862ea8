"""The pages and the completion that are made from the parsers are those of the parsers as they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from moorage.cli import VERBS
from moorage.common.command import run

ROOT = Path(__file__).parents[2]
COMPLETION = ROOT / "share/bash-completion/completions/moorage"
PLACES = ("docs/reference/commands.md", "share")
COMPLETE = "source {}; COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _shtab_moorage; echo ${{COMPREPLY[*]}}"


def texts(top: Path) -> dict[str, str]:
    found = [file for place in PLACES for file in ((top / place).rglob("*") if place == "share" else [top / place])]
    return {str(file.relative_to(top)): file.read_text() for file in found if file.is_file()}


@pytest.mark.commands(Path(sys.executable).name)
def test_what_is_generated_is_up_to_date(tmp_path: Path) -> None:
    """If not: tools/bootstrap tools/reference-commands."""
    run([sys.executable, ROOT / "tools/reference-commands", tmp_path], env={"PYTHONDONTWRITEBYTECODE": "1"})
    made, kept = texts(tmp_path), texts(ROOT)
    assert {name for name in {*made, *kept} if made.get(name) != kept.get(name)} == set()
    assert {f"share/man/man1/moorage-{verb}.1" for verb in VERBS} < {*made}


@pytest.mark.commands("bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("moorage do", "down doctor"),
        ("moorage help do", "down doctor"),
        ("moorage image re", "remove"),
        ("moorage doctor --u", "--user"),
        ("moorage net explain --uplink pa", "pasta"),
        (f"moorage load {ROOT}/pyproj", f"{ROOT}/pyproject.toml"),
        (f"moorage config show {ROOT}/LIC", f"{ROOT}/LICENSE"),
    ],
)
def test_bash_completes(words: str, offered: str) -> None:
    said = run(["bash", "-c", COMPLETE.format(COMPLETION, words)]).stdout
    assert said.strip() == offered
