"""The record of a job that is over."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

from moorage.common import job, phases
from moorage.common.job import Job
from moorage.common.spec import parse
from moorage.linux.cgroup import Usage
from moorage.node.finding import Finding
from moorage.root.cleanup.end_of_job import Leftover
from moorage.root.records import record
from moorage.root.records.counters import cluster_of
from moorage.root.records.record import Ending
from moorage.root.records.start_log import Course, Step
from moorage.root.state import About, Limits, Scratch, State

JOB = Job(17, 2, 1000, 1000, "alice", "n1", frozenset({"job_17"}))
LIMITS = Limits(0, 0, 0, 0, 0, 0, 0)
ABOUT = About(1763510400.0, {"spec": {"cluster": "kind"}, "uplink": "pasta", "image": "node:v1"}, 30, None)
STEPS = ((100, "prolog"), (101, "launch"), (103, "podman"), (104, "ready"), (110, "down"))
EPILOG = Ending("epilog", "0:9")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "STATE", tmp_path / "jobs")
    return tmp_path / "records"


def state(**fields: Any) -> State:  # noqa: ANN401
    begun = State.begin(JOB, LIMITS, Scratch("loop", "/x/17.img"), about=ABOUT)
    return dataclasses.replace(begun, usage=Usage(1.5, 1 << 20, 12), **fields)


def way(*steps: tuple[float, str]) -> Course:
    return Course(tuple(Step(at, word) for at, word in steps))


def put(fields: dict[str, Any], days: int = 30) -> None:
    record.put(lambda: fields, days, None)


def kept(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(place.iterdir()) for line in path.read_text().splitlines()]


def test_every_name_and_word_is_documented() -> None:
    text = (Path(__file__).parents[4] / "docs/reference/records.md").read_text()
    names = {*record.ended(state(), Course(), [], EPILOG), *record.DESCRIBED}
    names |= {*record.refused(JOB, None, Finding("x", "y", "z"), 0.0), "features", "versions"}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
    assert [word for word in (*phases.SPANS, *phases.ENDS) if f"`{word}`" not in text] == []


def test_of_a_job_that_went_well() -> None:
    left = [Leftover("process", "4711 (s\nh)", "it does not end", ours=False)]
    found = record.ended(state(), way(*STEPS), left, EPILOG)
    assert {name: found[name] for name in ("node", "job", "restart", "user", "uid")} == {
        "node": "n1",
        "job": 17,
        "restart": 2,
        "user": "alice",
        "uid": 1000,
    }
    assert found["begun"] == "2025-11-19T00:00:00Z"
    assert (found["outcome"], found["ending"], found["by"], found["exit"]) == ("ready", "orderly", "epilog", "0:9")
    assert (found["phase"], found["cause"]) == (None, None)
    assert (found["start_seconds"], found["up_seconds"]) == (4, 6)
    assert found["phases"] == {"prolog": 1, "launch": 2, "podman": 1}
    assert found["usage"] == {"cpu_seconds": 1.5, "memory_peak": 1 << 20, "processes": 12}
    assert found["leftovers"] == [{"what": "process", "name": "4711 (s h)", "cause": "it does not end", "ours": False}]
    assert (found["scratch"], found["uplink"], found["image"]) == ("loop", "pasta", "node:v1")
    assert cluster_of(found) == "kind"


@pytest.mark.parametrize(
    ("steps", "by", "boot", "ending"),
    [
        (STEPS, "epilog", "this", "orderly"),
        (STEPS[:-1], "epilog", "this", "cut off"),
        (STEPS, "sweep", "this", "abandoned"),
        (STEPS, "prolog", "this", "abandoned"),
        (STEPS, "sweep", "another", "reboot"),
        ((), "epilog", "another", "reboot"),
    ],
)
def test_how_it_ended(steps: tuple[tuple[float, str], ...], by: Any, boot: str, ending: str) -> None:  # noqa: ANN401
    known = state() if boot == "this" else state(boot=boot)
    assert record.ended(known, way(*steps), [], Ending(by))["ending"] == ending


def test_of_a_start_that_failed() -> None:
    course_of = Course((Step(1, "prolog"), Step(2, "podman"), Step(3, "failed", "no\troom\x1b[2J [M-JOB-1]")))
    found = record.ended(state(), course_of, [], EPILOG)
    assert (found["outcome"], found["phase"], found["cause"]) == ("failed", "podman", "no room\\x1b[2J [M-JOB-1]")
    assert found["code"] == "M-JOB-1"
    assert found["start_seconds"] is None


def test_of_a_job_of_which_little_is_known() -> None:
    found = record.ended(state(about=None, boot="another"), Course(), [], Ending("sweep"))
    assert (found["outcome"], found["phase"], found["begun"]) == ("unfinished", None, None)
    assert cluster_of(found) == "unknown"


def test_of_a_refusal() -> None:
    found = record.refused(JOB, parse("1"), Finding("subuid", "no\nsubuids", "ask for some", "user", code="M-A-1"), 0.0)
    assert (found["outcome"], found["check"], found["fault"], found["phase"]) == ("refused", "subuid", "user", "prolog")
    assert (found["cause"], found["code"]) == ("no subuids: ask for some", "M-A-1")
    assert (found["job"], cluster_of(found)) == (17, "kind")


@pytest.mark.parametrize(
    ("said", "code"), [("0:0", "0:0"), ("1:15", "1:15"), (None, None), ("", None), ("0:0\n", None), ("x" * 99, None)]
)
def test_what_slurm_says_of_its_end(said: str | None, code: str | None) -> None:
    environ = {} if said is None else {"SLURM_JOB_EXIT_CODE2": said}
    assert Ending.of_hook(environ) == Ending("epilog", code)


def test_it_is_one_line_of_a_days_file(place: Path) -> None:
    for number in (1, 2):
        put({"job": number, "cause": "a\nb"})
    (path,) = place.iterdir()
    assert path.name == time.strftime("%Y-%m-%d.jsonl", time.gmtime())
    assert kept(place) == [{"job": 1, "cause": "a\nb"}, {"job": 2, "cause": "a\nb"}]
    assert (path.stat().st_mode & 0o777, place.stat().st_mode & 0o777) == (0o600, 0o700)


def test_no_record_where_none_is_wanted(place: Path) -> None:
    put({"job": 1}, 0)
    put({"outcome": "refused"})
    assert not place.exists()


def test_old_ones_go_with_the_first_of_a_day(place: Path) -> None:
    now = time.time()
    place.mkdir()
    for days in (0, 1, 2, 3, 40):
        if days:
            (place / time.strftime("%Y-%m-%d.jsonl", time.gmtime(now - days * 86400))).write_text("{}\n")
    for other in ("notes", "2020-01-01.jsonl.bak", "2020-01-0x.jsonl"):
        (place / other).touch()
    put({"job": 1}, 2)
    days_left = {path.name for path in place.iterdir() if path.name.startswith(time.strftime("%Y", time.gmtime(now)))}
    assert len(days_left) == 3
    assert {"notes", "2020-01-01.jsonl.bak", "2020-01-0x.jsonl"} < {path.name for path in place.iterdir()}


def test_there_is_an_end_to_a_days_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "MOST_BYTES", 100)
    for number in range(20):
        put({"job": number, "cause": "x" * 20})
    (path,) = place.iterdir()
    assert path.stat().st_size <= 101
    assert "nothing more is kept of this day" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["a file", "nonsense"])
def test_it_is_never_in_the_way(place: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    if what == "a file":
        place.write_text("")
        put({"job": 1})
    else:
        put({"job": 1, "x": object()})
    assert "job 1 record: not put on record: " in capsys.readouterr().err


def test_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    place.mkdir()
    victim = tmp_path / "victim"
    (place / time.strftime("%Y-%m-%d.jsonl", time.gmtime())).symlink_to(victim)
    put({"job": 1})
    assert not victim.exists()


def test_the_longest_is_bounded() -> None:
    left = [Leftover("mount", "x" * 9999, "y" * 9999)] * 99
    long = Course(tuple(Step(at, word, "z" * 300) for at, word in enumerate(phases.TOLD * 3)))
    assert len(json.dumps(record.ended(state(), long, left, EPILOG))) < 20000
