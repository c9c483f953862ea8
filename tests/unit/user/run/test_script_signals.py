"""Signals that only the agents have got."""

from __future__ import annotations

import pytest

from moorage.user.run.script import Strays


@pytest.mark.parametrize(
    ("story", "certain"),
    [
        ([], []),
        (["told USR1"], ["USR1"]),
        (["told USR1", "told USR1"], ["USR1"]),
        (["told USR1", "told USR2"], ["USR1", "USR2"]),
        (["told TERM", "received TERM"], []),
        (["received TERM", "told TERM"], []),
        (["told USR1", "received TERM"], ["USR1"]),
        (["told CONT", "told TSTP"], []),
    ],
)
def test_story(story: list[str], certain: list[str]) -> None:
    strays = Strays(patience=0)
    for event, _, name in (line.partition(" ") for line in story):
        (strays.told if event == "told" else strays.received)(name)
    assert strays.certain() == certain
    assert strays.certain() == []
    assert strays.patience is None


def test_nothing_is_certain_at_once() -> None:
    strays = Strays(patience=60)
    strays.told("USR1")
    assert strays.certain() == []
    patience = strays.patience or 0
    assert 0 < patience <= 60
