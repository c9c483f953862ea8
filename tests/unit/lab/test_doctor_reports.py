"""How the lab counts the faults of a node that were found."""

from __future__ import annotations

import pytest

from support.faults.lines import ADVICE, DRAINS, FAILS, FOUND, TOLD_BY_THE_AGENT
from support.faults.on_a_guest import BREAKAGES
from virtual.probes.doctor_reports import LINES, Count, Look

SYSCTL = "sysctl: kernel.keys.maxkeys is 200: set it to 1000 or more, as config/sysctl.d/50-moorage.conf does"
OTHER = "clock: it is 1970: set it"


def look(name: str, *lines: str) -> Look:
    return Look(name, "", int(bool(lines)), lines, 0.1)


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ([look("sound"), look("few keys", SYSCTL)], "faults=1/1 false=0"),
        ([look("sound"), look("few keys")], "faults=0/1 false=0"),
        ([look("sound"), look("few keys", OTHER)], "faults=0/1 false=1"),
        ([look("sound"), look("few keys", SYSCTL, OTHER)], "faults=0/1 false=1"),
        ([look("sound"), look("few keys", SYSCTL, SYSCTL)], "faults=0/1 false=1"),
        ([look("sound", OTHER), look("few keys", SYSCTL)], "faults=1/1 false=1"),
        ([look("few keys", SYSCTL), look("no podman", SYSCTL), look("sound again")], "faults=1/2 false=1"),
    ],
)
def test_what_counts(looks: list[Look], said: str) -> None:
    assert str(Count.of(looks)) == said


def test_a_fault_with_which_the_doctor_is_content_was_not_found() -> None:
    assert not Look("few keys", "", 0, (SYSCTL,), 0.1).exact


def test_every_line_is_of_something_that_can_be_broken() -> None:
    assert set(FAILS) | set(DRAINS) | set(FOUND) | set(ADVICE) | set(TOLD_BY_THE_AGENT) <= set(BREAKAGES)
    assert set(LINES) <= set(BREAKAGES)
