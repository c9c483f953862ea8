"""What was measured on this node, and when that counts no more."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.node import uplink_speed
from moorage.node.uplink_speed import Record, Speed, Spread

FAST = Speed(Spread(16, 15, 17.5), Spread(17, 16, 18), Spread(40, 39, 44))
SLOW = Speed(Spread(3, 2, 4), Spread(5, 4, 6), Spread(90, 80, 99))
VERSIONS = {"pasta": "pasta 2025_05_03"}
RECORD = Record(os.uname().release, FAST, {"kernel": FAST, "pasta": SLOW}, VERSIONS, {"slirp4netns": "not installed"})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "uplinks.json"


def test_is_kept_for_all_to_read(place: Path) -> None:
    RECORD.save(place)
    assert place.stat().st_mode & 0o777 == 0o644
    assert Record.from_dict(json.loads(place.read_text())) == RECORD
    assert uplink_speed.known(VERSIONS, place) == {"kernel": FAST, "pasta": SLOW}


def test_another_kernel_knows_nothing(place: Path) -> None:
    replace(RECORD, kernel="5.14.0").save(place)
    assert uplink_speed.known(VERSIONS, place) == {}


@pytest.mark.parametrize("versions", [{}, {"pasta": "pasta 2026_01_01"}])
def test_of_a_program_that_has_changed_nothing_is_known(place: Path, versions: dict[str, str]) -> None:
    RECORD.save(place)
    assert uplink_speed.known(versions, place) == {"kernel": FAST}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"form": 2}',
        json.dumps({**RECORD.as_dict(), "form": 0}),
        json.dumps({**RECORD.as_dict(), "uplinks": []}),
        json.dumps({**RECORD.as_dict(), "uplinks": {"kernel": {"outward": [1, 2]}}}),
        json.dumps({**RECORD.as_dict(), "versions": None}),
    ],
)
def test_what_is_not_understood_counts_for_nothing(place: Path, text: str) -> None:
    place.write_text(text)
    place.chmod(0o600)
    assert uplink_speed.known(VERSIONS, place) == {}


def test_nobody_else_decides_what_jobs_get(place: Path) -> None:
    RECORD.save(place)
    place.chmod(0o622)
    assert uplink_speed.known(VERSIONS, place) == {}
    place.unlink()
    place.symlink_to("/dev/null")
    assert uplink_speed.known(VERSIONS, place) == {}


def test_no_measurement_is_none(place: Path) -> None:
    assert uplink_speed.known(VERSIONS, place) == {}


def test_a_job_needs_both_directions() -> None:
    assert SLOW.worth == 3
    assert replace(SLOW, inward=Spread(1, 1, 1)).worth == 1


def test_of_several_measurements() -> None:
    assert Spread.of([4, 1, 2]) == Spread(2, 1, 4)
    assert str(Spread.of([4, 1, 2])) == "2.00 (1.00-4.00)"
