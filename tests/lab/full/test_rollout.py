"""A bare node, the role, and the node as it was: what the rollout promises."""

from __future__ import annotations

from support.figures import Figures
from virtual import builds, rollout
from virtual.cache import CACHE
from virtual.record import Request

DIRECTORY = CACHE / "test-rollout"
PORT = 22900


def test_from_nothing_and_back(figures: Figures) -> None:
    with builds.own(DIRECTORY, Request(1, "trixie", PORT, bare=True)) as lab:
        found = rollout.check(lab)
    print(found)
    figures.add("second run of the role: tasks that changed something", found.second_changed, "", at_most=0)
    figures.add("left after it was taken off: files, units", len(found.different), "", at_most=0)
    assert found.good, found
