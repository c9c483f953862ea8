"""What the lab concludes from a rollout: good only if nothing changed, nothing is left, and every fault was found."""

from __future__ import annotations

import pytest

from virtual.faults import Count
from virtual.rollout import Outcome, differences
from virtual.site import _CHANGED


@pytest.mark.parametrize(
    ("outcome", "line", "good"),
    [
        (Outcome(0, (), Count(40, 40, 0)), "rollout: second_changed=0 uninstall_diff=0 faults=40/40 false=0", True),
        (Outcome(1, (), Count(40, 40, 0)), "rollout: second_changed=1 uninstall_diff=0 faults=40/40 false=0", False),
        (
            Outcome(0, ("x",), Count(40, 40, 0)),
            "rollout: second_changed=0 uninstall_diff=1 faults=40/40 false=0",
            False,
        ),
        (Outcome(0, (), Count(40, 39, 0)), "rollout: second_changed=0 uninstall_diff=0 faults=39/40 false=0", False),
        (Outcome(0, (), Count(40, 40, 1)), "rollout: second_changed=0 uninstall_diff=0 faults=40/40 false=1", False),
        (Outcome(0, (), Count(29, 29, 0)), "rollout: second_changed=0 uninstall_diff=0 faults=29/29 false=0", False),
    ],
)
def test_the_last_line(outcome: Outcome, line: str, good: bool) -> None:
    assert (str(outcome), outcome.good) == (line, good)


def test_what_is_not_as_before() -> None:
    before = {"/etc/a": "1", "/etc/b": "1", "/etc/c": "1"}
    assert differences(before, {"/etc/a": "1", "/etc/b": "2", "/etc/d": "1"}) == [
        "/etc/b: 1 before, 2 now",
        "/etc/c: 1 before, not there now",
        "/etc/d: not there before, 1 now",
    ]
    assert differences(before, before) == []


def test_what_a_play_has_changed_is_in_its_last_lines() -> None:
    recap = """\
changed: [guest] => (item=changed=7)
PLAY RECAP *********************************************************************
guest                      : ok=77   changed=12   unreachable=0    failed=0    skipped=26   rescued=0    ignored=0
"""
    assert _CHANGED.findall(recap) == ["12"]
