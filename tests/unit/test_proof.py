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
