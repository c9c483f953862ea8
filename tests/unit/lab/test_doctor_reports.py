"""How the lab counts the faults of a node that were found."""

from __future__ import annotations

import re

import pytest

from support.faults.catalogue import AGENT, DOCTOR, DRAINS, FAILS, FAULTS
from support.faults.fault import Effect
from virtual.probes.doctor_reports import Count, Look

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


def test_every_fault_can_be_made_and_has_a_line() -> None:
    for name, fault in FAULTS.items():
        assert fault.guest or fault.made_up, name
        assert bool(fault.line) == (fault.effect is not Effect.NONE), name
    said = FAILS | DRAINS | AGENT | DOCTOR
    assert [line for line in said.values() if re.search("<[a-z]", line)] == []
