"""The count of the documentation's words, on trees made for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

WORDS = Path(__file__).parents[2] / "tools/words"

pytestmark = pytest.mark.commands(Path(sys.executable).name)


def count(tree: Path, pages: Mapping[str, str]) -> tuple[int, list[str]]:
    """The exit code, and the lines without the blanks before them."""
    for name, text in pages.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    done = subprocess.run([sys.executable, WORDS, tree], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, [line.strip() for line in done.stdout.splitlines()]


def test_each_page_is_counted(tmp_path: Path) -> None:
    pages = {"README.md": "one", "CONTRIBUTING.md": "a b", "SECURITY.md": "a b c", "ansible/README.md": "a b c d"}
    assert count(tmp_path, {**pages, "docs/use/deep/first.md": "a b c d e"}) == (
        0,
        [
            *("1 README.md", "2 CONTRIBUTING.md", "3 SECURITY.md", "4 ansible/README.md", "5 docs/use/deep/first.md"),
            "decisions: 0 of 8000",
            "words: 15 of 18000",
        ],
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CHANGELOG.md", "a b"),
        ("docs/proof.md", "a b"),
        ("docs/reference/errors.md", "<!-- generated: moorage errors -->\na b"),
        ("docs/picture.svg", "a b"),
        ("plugin/README.md", "a b"),
    ],
)
def test_other_pages_are_not(tmp_path: Path, name: str, text: str) -> None:
    assert count(tmp_path, {name: text}) == (0, ["decisions: 0 of 8000", "words: 0 of 18000"])


@pytest.mark.parametrize("name", ["docs/operate/proof.md", "docs/changes.md"])
def test_a_page_with_a_like_name_is(tmp_path: Path, name: str) -> None:
    assert count(tmp_path, {name: "said <!-- generated: it -->"})[1][-1] == "words: 5 of 18000"


def test_decisions_are_counted_apart(tmp_path: Path) -> None:
    assert count(tmp_path, {"docs/decisions/0001-lock.md": "a b", "docs/a.md": "a"}) == (
        0,
        ["2 docs/decisions/0001-lock.md", "1 docs/a.md", "decisions: 2 of 8000", "words: 1 of 18000"],
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [("", 0), (" \n\t\n", 0), ("| a | `b c` |\n|---|---|\n", 7), ("- `--k8s=1`: yes", 3), ("kind's\nün-done", 2)],
)
def test_a_word_is_what_stands_between_white_space(tmp_path: Path, text: str, words: int) -> None:
    assert count(tmp_path, {"README.md": text})[1][-1] == f"words: {words} of 18000"


@pytest.mark.parametrize(
    ("pages", "decisions", "code"),
    [(18_000, 0, 0), (18_001, 0, 1), (0, 8_000, 0), (0, 8_001, 1), (18_000, 8_000, 0)],
)
def test_the_limits(tmp_path: Path, pages: int, decisions: int, code: int) -> None:
    texts = {"docs/a.md": "a " * pages, "docs/decisions/a.md": "a " * decisions}
    shown = [f"decisions: {decisions} of 8000", f"words: {pages} of 18000"]
    ended, lines = count(tmp_path, texts)
    assert (ended, lines[-2:]) == (code, shown)
