"""What `moorage net measure` says, and which figures it keeps."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.cli.net import BUSY, main, table
from moorage.common.errors import UserError
from moorage.node import factcache, programs, uplink_speed
from moorage.node.programs import Program
from moorage.node.uplink_speed import Record, Speed, Spread
from moorage.root.net.bench import measure

FAST = Speed(Spread(16, 15, 17.5), Spread(17, 16, 18), Spread(40, 39, 44))
SLOW = Speed(Spread(3, 2, 4), Spread(5, 4, 6), Spread(90, 80, 99))
# Measured while other programs ran.
UNSTEADY = replace(SLOW, inward=Spread(0.3, 0, 0.51))
DEAD = Speed(Spread(0, 0, 0), Spread(0, 0, 0), Spread(1e7, 1e7, 1e7))
VERSIONS = {"pasta": "pasta 2025_05_03"}
RECORD = Record(os.uname().release, FAST, {"kernel": FAST, "pasta": SLOW}, VERSIONS, {"slirp4netns": "not installed"})
DOUBT = "the rounds of pasta disagree (in: 0.00 to 0.51 Gbit/s)"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A quiet machine with pasta, whose measurement ends in RECORD."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 9.0, 9.0))
    monkeypatch.setattr(uplink_speed, "PLACE", tmp_path / "uplinks.json")
    monkeypatch.setattr(factcache, "PLACE", tmp_path / "facts.json")
    monkeypatch.setattr(programs, "installed", lambda _: {"pasta": Program(Path("/usr/bin/pasta"), VERSIONS["pasta"])})
    ends_in(RECORD, monkeypatch)
    return tmp_path / "uplinks.json"


def ends_in(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "measure", lambda *given: record if given[1] == VERSIONS else None)


def test_a_table_for_people(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [*table(RECORD).splitlines(), "kept in /var/lib/moorage/uplinks.json"]
    assert said.err == "moorage: this takes about 1:06, and puts load on two processors\n"
    assert Record.from_dict(json.loads(place.read_text())) == RECORD


def test_an_object_for_programs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["kept"], said["doubt"]) == (1, True, "")
    assert Record.from_dict(said) == RECORD
    assert place.exists()


@pytest.mark.parametrize("as_json", [True, False])
def test_figures_that_disagree_are_not_kept(
    as_json: bool, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    doubtful = replace(RECORD, uplinks={"kernel": FAST, "pasta": UNSTEADY})
    ends_in(doubtful, monkeypatch)
    assert main(["measure", *(["--json"] if as_json else [])]) == 1
    said = capsys.readouterr().out
    if as_json:
        assert {name: json.loads(said)[name] for name in ("kept", "doubt")} == {"kept": False, "doubt": DOUBT}
    else:
        assert said.splitlines()[-1] == f"not kept: {DOUBT}: measure again when no job runs"
    assert not place.exists()
    assert main(["measure", "--force"]) == 0
    assert Record.from_dict(json.loads(place.read_text())) == doubtful


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({}, ""),
        ({"uplinks": {"pasta": DEAD}}, ""),
        ({"uplinks": {"pasta": UNSTEADY}}, DOUBT),
        ({"bare": replace(FAST, outward=Spread(9, 4, 8))}, ""),
        ({"bare": replace(FAST, outward=Spread(9, 4, 8.1))}, "the rounds of bare disagree (out: 4.00 to 8.10 Gbit/s)"),
    ],
)
def test_rounds_that_disagree(changes: dict[str, Any], doubt: str) -> None:
    assert measure.unsteady(replace(RECORD, **changes)) == doubt


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_busy_machine_is_not_measured(words: Sequence[str], place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "getloadavg", lambda: (4 * BUSY + 0.1, 0.0, 0.0))
    with pytest.raises(UserError, match=r"this machine is busy \(load 2\.1, 4 processors\): measure when no job runs"):
        main(["measure", *words])
    assert not place.exists()
    assert main(["measure", "--force", *words]) == 0
    assert place.exists()


def test_how_long_it_takes() -> None:
    """As measured: 87 s with all uplinks."""
    assert measure.estimated(["pasta", "slirp4netns", "podman"], 5, 1.0) == pytest.approx(87, abs=3)
    assert measure.estimated([], 1, 0.1) < 7


@pytest.mark.parametrize("words", [["--repeat", "0"], ["--repeat", "x"], ["--seconds", "x"]])
def test_wrong_numbers(words: list[str], place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["measure", *words])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not place.exists()


def test_medians_in_a_table() -> None:
    assert table(RECORD).splitlines() == [
        "        out, Gbit/s          in, Gbit/s           answer, us           of bare",
        "bare    16.00 (15.00-17.50)  17.00 (16.00-18.00)  40.00 (39.00-44.00)  1.00",
        "kernel  16.00 (15.00-17.50)  17.00 (16.00-18.00)  40.00 (39.00-44.00)  1.00",
        "pasta   3.00 (2.00-4.00)     5.00 (4.00-6.00)     90.00 (80.00-99.00)  0.19",
        "slirp4netns: not measured, not installed",
    ]
