"""The recording of a terminal: every line is in the picture, in its order and at its time."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from virtual.recording import LONGEST_WAIT, REST, ROWS, Recording, drawn, shown

SVG = "{http://www.w3.org/2000/svg}"


def rows(picture: str) -> list[str]:
    return [row.text or "" for row in ElementTree.fromstring(picture).iter(f"{SVG}text")]  # noqa: S314 - ours


def test_what_was_said_is_in_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 0.0, 100.0])
    recording = Recording(lambda: next(clock))
    recording.say("$ sbatch --k8s=1 job.sh\nSubmitted batch job 17")
    recording.say("left on the node: <nothing> & no more")
    recording.save(tmp_path / "deep/demo.svg")
    assert capsys.readouterr().out.count("\n") == 3
    assert rows((tmp_path / "deep/demo.svg").read_text()) == [line for _, line in recording.lines]
    assert [moment for moment, _ in recording.lines] == [0.0, 0.0, 100.0]


def test_waits_are_cut_short_and_keep_their_order() -> None:
    moments = shown([5.0, 5.0, 5.4, 300.0])
    assert moments == sorted(set(moments))
    assert moments[2] - moments[1] == pytest.approx(0.4)
    assert moments[3] - moments[2] == pytest.approx(LONGEST_WAIT)


def test_more_lines_than_rows_roll_up() -> None:
    picture = drawn([(float(number), f"line {number}") for number in range(ROWS + 3)])
    assert len(rows(picture)) == ROWS + 3
    assert re.findall(r'transform="translate\(0 (-?\d+)\)"', picture) == ["-54"]
    assert "translateY(-54px)" in picture


def test_it_begins_again_after_a_rest() -> None:
    assert "infinite" in drawn([(0.0, "one"), (0.5, "two")])
    assert f"{0.05 + 0.5 + REST:.1f}s" in drawn([(0.0, "one"), (0.5, "two")])


def test_nothing_makes_an_empty_terminal() -> None:
    assert rows(drawn([])) == []
