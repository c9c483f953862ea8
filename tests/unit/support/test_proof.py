"""The report of the full tests."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from support import proof
from support.figures import Figure


def test_a_part_says_what_it_was_measured_with(tmp_path: Path) -> None:
    kept = tmp_path / "figures"
    figure = {"what": "boot", "measured": 40.0, "unit": "s", "at_most": 90, "at_least": None}
    lines = [{"note": "Debian trixie: slurmd 24.11"}, figure, {"note": "Debian trixie: slurmd 24.11"}]
    kept.write_text("".join(json.dumps(line) + "\n" for line in lines))
    figures, notes = proof.told(kept)
    assert (figures, notes) == ([figure], ["Debian trixie: slurmd 24.11"])
    said = proof.section(proof.Part("sizes", "2026-01-01", 12.3, figures, notes))
    assert said.startswith("## sizes\n\n2026-01-01: passed in 12 s.\n\n- Debian trixie: slurmd 24.11\n")
    assert str(Figure(**figure).promise) in said  # type: ignore[arg-type]


def test_notes_are_as_wide_as_other_pages() -> None:
    said = proof.section(proof.Part("sizes", "2026-01-01", 12.3, [], ["version " * 40]))
    assert max(map(len, said.splitlines())) <= proof.WIDTH


def test_what_measured_nothing_has_no_table(tmp_path: Path) -> None:
    assert proof.told(tmp_path / "none") == ([], [])
    assert proof.section(proof.Part("lint", "2026-01-01", 3, [])) == ("## lint\n\n2026-01-01: passed in 3 s.\n")


REPORT = """<testsuites><testsuite tests="3">
<testcase classname="tests.lab.walk.test_one" name="test_a[trixie]" time="1"/>
<testcase classname="tests.lab.walk.test_one" name="test_b"><failure message="x">no</failure></testcase>
<testcase classname="tests.lab.walk.test_one" name="test_c"><skipped message="not here"/></testcase>
</testsuite></testsuites>"""


def test_what_failed_is_named(tmp_path: Path) -> None:
    (tmp_path / "walk.xml").write_text(REPORT)
    counts, failed = proof.judged(tmp_path / "walk.xml")
    assert counts == {"passed": 1, "failed": 1, "skipped": 1}
    assert proof.section(proof.Part("walk", "2026-01-01", 3, [], [], counts, failed, whole=False)) == (
        "## walk\n\n2026-01-01: failed in 3 s (1 passed, 1 failed, 1 skipped).\n\n- failed: `test_one: test_b`\n"
    )


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "checkout"
    (place / "docs").mkdir(parents=True)
    monkeypatch.chdir(place)
    for variable in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(variable)
    (place / "code.py").write_text("1\n")
    (place / "README.md").write_text("one\n")
    (place / "docs/page.md").write_text("one\n")
    subprocess.run(["git", "init", "--quiet"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    commit()
    return place


def commit() -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, "commit", "--quiet", "--all", "--message=x"], check=True)


@pytest.mark.commands("git")
class TestTree:
    def test_prose_makes_no_other_tree(self, checkout: Path) -> None:
        before = proof.tree()
        for page in ("README.md", "docs/page.md"):
            (checkout / page).write_text("two\n")
            assert proof.tree() == before
        commit()
        assert proof.tree() == before

    def test_code_does(self, checkout: Path) -> None:
        before = proof.tree()
        (checkout / "code.py").write_text("2\n")
        assert proof.tree() == f"{before}-changed"
        commit()
        assert proof.tree() not in (before, f"{before}-changed")

    def test_a_page_shows_one_tree(self, checkout: Path, tmp_path: Path) -> None:
        (tmp_path / "walk.xml").write_text(REPORT)
        proof.main(["keep", str(tmp_path), "walk", "3", "1", str(tmp_path)])
        proof.main(["keep", str(tmp_path), "lint", "2", "0", str(tmp_path)])
        proof.main(["report", str(tmp_path), "docs/proof.md", "lint", "walk", "nodes"])
        page = (checkout / "docs/proof.md").read_text()
        assert f"Tree {proof.tree()} " in page
        assert "- Not run on this tree: `nodes`.\n- Failed: `walk`.\n" in page
        assert [line for line in page.splitlines() if line.startswith("## ")] == ["## lint", "## walk"]
        (checkout / "code.py").write_text("2\n")
        commit()
        proof.main(["report", str(tmp_path), "docs/proof.md", "lint", "walk", "nodes"])
        assert "- Not run on this tree: `lint`, `walk`, `nodes`.\n" in (checkout / "docs/proof.md").read_text()
