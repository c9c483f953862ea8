"""What the lab concludes from a rollout: good only if nothing changed, nothing is left, and every fault was found."""

from __future__ import annotations

import pytest

from moorage.common.command import Completed
from moorage.common.errors import MoorageError
from virtual import rollout
from virtual.build import installation
from virtual.probes.doctor_reports import Count
from virtual.rollout import SOURCE, TIMED, Outcome, differences, timed

LINE = "rollout: second_changed={} uninstall_diff={} faults={} false={}"


@pytest.mark.parametrize(
    ("outcome", "figures", "good"),
    [
        (Outcome(0, (), Count(40, 40, 0)), (0, 0, "40/40", 0), True),
        (Outcome(1, (), Count(40, 40, 0)), (1, 0, "40/40", 0), False),
        (Outcome(0, ("x",), Count(40, 40, 0)), (0, 1, "40/40", 0), False),
        (Outcome(0, (), Count(40, 39, 0)), (0, 0, "39/40", 0), False),
        (Outcome(0, (), Count(40, 40, 1)), (0, 0, "40/40", 1), False),
        (Outcome(0, (), Count(29, 29, 0)), (0, 0, "29/29", 0), False),
    ],
)
def test_the_last_line(outcome: Outcome, figures: tuple[object, ...], good: bool) -> None:
    assert (str(outcome), outcome.good) == (LINE.format(*figures), good)


FIGURE = "moorage doctor --quick: 81 ms, quickest of 15 77 ms"


def ends(monkeypatch: pytest.MonkeyPatch, code: int, said: str) -> None:
    monkeypatch.setattr(rollout, "run", lambda argv, **_: Completed(tuple(argv), code, said, ""))


def test_the_doctor_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    ends(monkeypatch, 0, f"{FIGURE}\n.")
    assert timed() == FIGURE


@pytest.mark.parametrize(("code", "said"), [(1, f"{FIGURE}\nF"), (0, "1 skipped\n")])
def test_unless_it_is_quick_nothing_goes_on(code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends(monkeypatch, code, said)
    with pytest.raises(MoorageError, match=f"^{TIMED} has failed: {said.splitlines()[0]}"):
        timed()


def test_what_times_it_is_there() -> None:
    file, _, name = TIMED.partition("::")
    assert f"\ndef {name}(" in (SOURCE / file).read_text()


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
    assert installation.changed(recap) == 12
