"""The report of the full tests."""

from __future__ import annotations

import json
from pathlib import Path

from support import proof
from support.figures import Figure


def test_a_part_says_what_it_was_measured_with(tmp_path: Path) -> None:
    kept = tmp_path / "figures"
    figure = {"what": "boot", "measured": 40.0, "unit": "s", "at_most": 90, "at_least": None}
    lines = [{"note": "Debian trixie: slurmd 24.11"}, figure, {"note": "Debian trixie: slurmd 24.11"}]
    kept.write_text("".join(json.dumps(line) + "\n" for line in lines))
    figures, notes = proof.told(kept)
    assert (figures, notes) == ([figure], ["Debian trixie: slurmd 24.11"])
    said = proof.section(proof.Part("sizes", "abc", "2026-01-01", 12.3, figures, notes))
    assert said.startswith("## sizes\n\nCommit abc, 2026-01-01: passed in 12 s.\n\n- Debian trixie: slurmd 24.11\n")
    assert str(Figure(**figure).promise) in said  # type: ignore[arg-type]


def test_notes_are_as_wide_as_other_pages() -> None:
    said = proof.section(proof.Part("sizes", "abc", "2026-01-01", 12.3, [], ["version " * 40]))
    assert max(map(len, said.splitlines())) <= proof.WIDTH


def test_what_measured_nothing_has_no_table(tmp_path: Path) -> None:
    assert proof.told(tmp_path / "none") == ([], [])
    assert proof.section(proof.Part("lint", "abc", "2026-01-01", 3, [])) == (
        "## lint\n\nCommit abc, 2026-01-01: passed in 3 s.\n"
    )


REPORT = """<testsuites><testsuite tests="3">
<testcase classname="tests.lab.walk.test_one" name="test_a[trixie]" time="1"/>
<testcase classname="tests.lab.walk.test_one" name="test_b"><failure message="x">no</failure></testcase>
<testcase classname="tests.lab.walk.test_one" name="test_c"><skipped message="not here"/></testcase>
</testsuite></testsuites>"""


def test_what_failed_is_named(tmp_path: Path) -> None:
    (tmp_path / "walk.xml").write_text(REPORT)
    counts, failed = proof.judged(tmp_path / "walk.xml")
    assert counts == {"passed": 1, "failed": 1, "skipped": 1}
    assert proof.section(proof.Part("walk", "abc", "2026-01-01", 3, [], [], counts, failed, whole=False)) == (
        "## walk\n\nCommit abc, 2026-01-01: failed in 3 s (1 passed, 1 failed, 1 skipped).\n\n"
        "- failed: `test_one: test_b`\n"
    )
