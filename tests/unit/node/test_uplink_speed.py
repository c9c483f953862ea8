"""What was measured on this node, and when that counts no more."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.cli.net import main, table
from moorage.node import factcache, programs, uplink_speed
from moorage.node.programs import Program
from moorage.node.uplink_speed import Record, Speed, Spread
from moorage.root.net.bench import measure

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


@pytest.mark.parametrize("as_json", [True, False])
def test_is_printed_for_programs_or_people(
    as_json: bool, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(uplink_speed, "PLACE", place)
    monkeypatch.setattr(factcache, "PLACE", place.with_name("facts.json"))
    monkeypatch.setattr(programs, "installed", lambda _: {"pasta": Program(Path("/usr/bin/pasta"), "pasta 2025_05_03")})
    monkeypatch.setattr(measure, "measure", lambda *given: RECORD if given[1] == VERSIONS else None)
    main(["measure", *(["--json"] if as_json else [])])
    said = capsys.readouterr().out
    assert (Record.from_dict(json.loads(said)) == RECORD) if as_json else said.startswith("        out, Gbit/s")
    assert Record.from_dict(json.loads(place.read_text())) == RECORD


def test_no_measurement_is_none(place: Path) -> None:
    assert uplink_speed.known(VERSIONS, place) == {}


def test_a_job_needs_both_directions() -> None:
    assert SLOW.worth == 3
    assert replace(SLOW, inward=Spread(1, 1, 1)).worth == 1


def test_of_several_measurements() -> None:
    assert Spread.of([4, 1, 2]) == Spread(2, 1, 4)
    assert str(Spread.of([4, 1, 2])) == "2.00 (1.00-4.00)"


def test_a_table_for_people() -> None:
    assert table(RECORD).splitlines() == [
        "        out, Gbit/s          in, Gbit/s           answer, us           of bare",
        "bare    16.00 (15.00-17.50)  17.00 (16.00-18.00)  40.00 (39.00-44.00)  1.00",
        "kernel  16.00 (15.00-17.50)  17.00 (16.00-18.00)  40.00 (39.00-44.00)  1.00",
        "pasta   3.00 (2.00-4.00)     5.00 (4.00-6.00)     90.00 (80.00-99.00)  0.19",
        "slirp4netns: not measured, not installed",
        "kept in /var/lib/moorage/uplinks.json",
    ]
