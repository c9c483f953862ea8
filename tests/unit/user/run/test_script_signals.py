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
    strays = Strays(timeout=0)
    for event, _, name in (line.partition(" ") for line in story):
        (strays.told if event == "told" else strays.received)(name)
    assert strays.certain() == certain
    assert strays.certain() == []
    assert strays.timeout is None


def test_nothing_is_certain_at_once() -> None:
    strays = Strays(timeout=60)
    strays.told("USR1")
    assert strays.certain() == []
    timeout = strays.timeout or 0
    assert 0 < timeout <= 60
