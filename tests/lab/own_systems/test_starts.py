"""How long a start takes with Moorage, compared with the reference in the same guest: what was promised of it."""

from __future__ import annotations

import pytest

from support.figures import Figures
from virtual.bench import baseline, start
from virtual.build.cache import CACHE
from virtual.guest import builds
from virtual.guest.record import Request

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-starts"
PORT = 22800
SUITE = "trixie"
ROUNDS = 2
AT_MOST = {"warm": 0.75, "cold": 0.50}
# Of a hundred.
PROLOG = 5.0


def test_a_start_takes_less_than_the_references(figures: Figures) -> None:
    builds.build(SUITE)
    with builds.own(DIRECTORY, Request(1, SUITE, PORT)) as lab:
        starts = start.report(lab.first.shell, ROUNDS, baseline.FORMS)
    for form, most in AT_MOST.items():
        ratio = start.ratio(starts, form)
        figures.add(f"start-up of Moorage's cluster, of the reference's, {form}", ratio, "", at_most=most)
    prolog = start.prologs(starts) * 100
    figures.add("Prolog of a job with a cluster, of its start-up", prolog, "%", at_most=PROLOG)
