"""What a job could leave on a node is found: one of each kind, planted by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

from virtual.guest.cluster import Cluster
from virtual.probes.leftovers import Thing, make_ready, new, record, settled

PLANTED = Path(__file__).resolve().parents[1] / "virtual/in_guest/plant_leftovers.py"


def plant(lab: Cluster, what: str) -> str:
    return lab.first.shell.run(["python3", "-", what], input=PLANTED.read_bytes()).stdout


def test_one_planted_thing_of_each_kind_is_found_and_nothing_else(lab: Cluster) -> None:
    make_ready(lab.first)
    before = record(lab.first)
    expected = [Thing(kind, pattern) for kind, pattern in json.loads(plant(lab, "plant"))]
    found = new(before, record(lab.first))
    plant(lab, "remove")
    unseen = [one for one in expected if not any(fits(one, thing) for thing in found)]
    unexpected = [thing for thing in found if not any(fits(one, thing) for one in expected)]
    assert [*map(str, unseen)] == []
    assert [*map(str, unexpected)] == []
    assert settled(lab.first, before)[1] == []


def fits(expected: Thing, found: Thing) -> bool:
    return expected.kind == found.kind and re.fullmatch(expected.what, found.what) is not None
