"""A figure that breaks its promise fails the test that measured it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.figures import KEPT_IN, Figure, Figures, table


@pytest.mark.parametrize(
    ("figure", "holds"),
    [
        (Figure("boot", 89, "s", at_most=90), True),
        (Figure("boot", 91, "s", at_most=90), False),
        (Figure("speed", 0.8, "", at_least=0.75), True),
        (Figure("speed", 0.7, "", at_least=0.75), False),
        (Figure("size", 3, "MB"), True),
    ],
)
def test_a_promise_is_kept_or_broken(figure: Figure, holds: bool) -> None:
    assert figure.holds is holds


def test_a_broken_promise_fails_and_is_still_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "figures"
    monkeypatch.setenv(KEPT_IN, str(kept))
    figures = Figures()
    figures.add("boot", 40, "s", at_most=90)
    with pytest.raises(AssertionError, match=r"boot: 91\.0 s \(at most 90 s\)"):
        figures.add("boot", 91, "s", at_most=90)
    assert [json.loads(line)["measured"] for line in kept.read_text().splitlines()] == [40, 91]


def test_the_report_has_a_row_for_every_figure() -> None:
    assert table([Figure("boot", 40, "s", at_most=90), Figure("size", 3, "MB")]).splitlines()[2:] == [
        "| boot | 40.0 s | at most 90 s |",
        "| size | 3.0 MB | - |",
    ]


@pytest.mark.parametrize(
    ("figure", "shown"),
    [(Figure("boot", 40, "s"), "40.0 s"), (Figure("ratio", 0.849, ""), "0.85"), (Figure("processes", 52, ""), "52")],
)
def test_a_figure_is_shown_as_exactly_as_it_is_worth(figure: Figure, shown: str) -> None:
    assert figure.shown == shown
