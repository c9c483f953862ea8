"""What a node tells Prometheus: counted right, kept through everything, and in the format to the letter."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

from moorage.common import job
from moorage.common.errors import MoorageError
from moorage.common.job import Job
from moorage.linux.process import Process
from moorage.root.records import counters, prometheus, record
from moorage.root.records.counters import BOUNDS, Tally
from moorage.root.state import About, Limits, State
from support import exposition

LIMITS = Limits(0, 0, 0, 0, 0, 0, 0)
READY: dict[str, Any] = {
    "job": 17,
    "outcome": "ready",
    "phase": None,
    "ending": "orderly",
    "spec": {"cluster": "kind"},
    "start_seconds": 31.0,
    "phases": {"prolog": 0.25, "readiness": 20.5, "other": 900.0},
    "usage": {"cpu_seconds": 12.5, "memory_peak": 1, "processes": 1},
    "leftovers": [{"what": "process"}, {"what": "process"}, {"what": "mount"}],
}
FAILED = {"job": 18, "outcome": "failed", "phase": "control-plane", "ending": "cut off", "spec": {"cluster": "kind"}}
REFUSED = {"outcome": "refused", "phase": "prolog", "check": "subuid"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "STATE", tmp_path / "moorage" / "jobs")
    (tmp_path / "textfile").mkdir()
    return tmp_path / "textfile"


def published(place: Path) -> dict[str, exposition.Family]:
    prometheus.publish(place)
    assert [path.name for path in place.iterdir()] == ["moorage.prom"]
    return exposition.read((place / "moorage.prom").read_text())


def value(place: Path, name: str, family: str = "", **labels: str) -> float:
    return published(place)[family or name].samples[name, frozenset(labels.items())]


def test_before_anything_has_happened(place: Path) -> None:
    families = published(place)
    assert families.keys() == prometheus.FAMILIES.keys()
    assert {name: family.kind for name, family in families.items()} == {
        name: family.kind for name, family in prometheus.FAMILIES.items()
    }
    assert all(
        value == 0 for name, family in families.items() if name != prometheus.BUILD for value in family.samples.values()
    )
    assert value(place, "moorage_starts_total", cluster="none", outcome="refused") == 0


def test_jobs_are_counted(place: Path) -> None:
    for one in (READY, READY, FAILED, REFUSED):
        prometheus.count(one)
    assert value(place, "moorage_starts_total", cluster="kind", outcome="ready") == 2
    assert value(place, "moorage_starts_total", cluster="unknown", outcome="refused") == 1
    assert value(place, "moorage_start_failures_total", stage="start", cause="control-plane") == 1
    assert value(place, "moorage_start_failures_total", stage="prolog", cause="subuid") == 1
    assert value(place, "moorage_endings_total", ending="cut off") == 1
    assert value(place, "moorage_leftovers_total", what="process") == 4
    assert value(place, "moorage_cpu_seconds_total", cluster="kind") == 25


def test_times_are_spread(place: Path) -> None:
    for _ in range(3):
        prometheus.count(READY)
    phase = "moorage_start_phase_seconds"
    for bound, number in (("0.1", 0), ("0.25", 3), ("600", 3), ("+Inf", 3)):
        assert value(place, f"{phase}_bucket", phase, phase="prolog", le=bound) == number
    for bound, number in (("600", 0), ("+Inf", 3)):
        assert value(place, f"{phase}_bucket", phase, phase="other", le=bound) == number
    assert value(place, f"{phase}_sum", phase, phase="readiness") == 61.5
    assert value(place, "moorage_start_seconds_count", "moorage_start_seconds", cluster="kind") == 3


@pytest.mark.parametrize("label", ['a"b', "a\nb", "a\\b", "a,b", "", "é", "x" * 100, "../x"])
def test_no_label_is_anybodys_own_word(place: Path, label: str) -> None:
    prometheus.count({"outcome": "refused", "check": label, "phase": "prolog", "spec": {"cluster": label}})
    assert value(place, "moorage_start_failures_total", stage="prolog", cause="other" if label else "prolog") == 1


def test_there_is_an_end_to_the_series(place: Path) -> None:
    kept = Tally()
    for number in range(2 * counters.MOST_SERIES):
        kept.count({"outcome": "refused", "check": f"c{number}"})
    assert len(kept.counts[counters.FAILURES]) == counters.MOST_SERIES + 1
    assert sum(kept.counts[counters.FAILURES].values()) == 2 * counters.MOST_SERIES


def test_what_was_counted_is_read_again() -> None:
    kept = Tally()
    for one in (READY, FAILED, REFUSED):
        kept.count(one)
    assert Tally.from_json(kept.as_json()) == kept


@pytest.mark.parametrize(
    "content",
    ["", "?", "[]", "{}", '{"counts": {}, "spreads": {"a": {"b": {"buckets": [1], "sum": 1}}}}', '{"counts": 1}'],
)
def test_what_makes_no_sense_begins_anew(place: Path, content: str) -> None:
    prometheus.count(READY)
    job.STATE.with_name("tally.json").write_text(content)
    prometheus.count(FAILED)
    assert value(place, "moorage_starts_total", cluster="kind", outcome="ready") == 0
    assert value(place, "moorage_starts_total", cluster="kind", outcome="failed") == 1


def test_hooks_at_once_lose_nothing(place: Path) -> None:
    # Each opens the lock for itself, as a process does.
    hooks = [threading.Thread(target=_often, args=(place,)) for _ in range(4)]
    for hook in hooks:
        hook.start()
    for hook in hooks:
        hook.join()
    assert value(place, "moorage_starts_total", cluster="kind", outcome="ready") == 40


def _often(place: Path) -> None:
    for _ in range(10):
        prometheus.count(READY)
        prometheus.publish(place)


def test_it_waits_for_nobody_for_long(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(counters, "_LOCKING", 0.05)
    with counters.kept():
        with pytest.raises(MoorageError, match="held by another"):
            prometheus.count(READY)
        record.put(lambda: dict(READY), 0, "/x")
        record.publish("/x")
    assert capsys.readouterr().err.count("not put on record: ") == 2


def test_everybody_may_read_it(place: Path) -> None:
    prometheus.publish(place)
    assert (place / "moorage.prom").stat().st_mode & 0o777 == 0o644


def test_a_link_there_is_replaced(place: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (place / "moorage.prom").symlink_to(victim)
    prometheus.publish(place)
    assert victim.read_text() == "mine"
    assert not (place / "moorage.prom").is_symlink()


def test_a_disk_that_is_full_keeps_the_old_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prometheus.publish(place)
    before = (place / "moorage.prom").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: 1 / 0)
        record.publish(place)
    assert [path.name for path in place.iterdir()] == ["moorage.prom"]
    assert (place / "moorage.prom").read_text() == before


def moored(number: int, cluster: str | None, **fields: Any) -> None:  # noqa: ANN401
    about = About(0.0, {"spec": {"cluster": cluster}}, 30, None) if cluster else None
    begun = State.begin(Job(number, 0, 1000, 1000, "alice", "n1", frozenset()), LIMITS, None, about=about)
    dataclasses.replace(begun, **fields).save()


def test_what_is_so_now(place: Path) -> None:
    gone = Process(1, 1)
    for number, cluster, fields in (
        (16, "kind", {}),
        (17, "kind", {}),
        (18, "none", {}),
        (19, None, {}),
        (20, "kind", {"owner": gone}),
        (21, "kind", {"boot": "another"}),
    ):
        moored(number, cluster, **fields)
    (job.STATE / "22.json").write_text("?")
    assert value(place, "moorage_clusters_running", cluster="kind") == 2
    assert value(place, "moorage_clusters_running", cluster="none") == 1
    assert value(place, "moorage_clusters_running", cluster="unknown") == 1
    assert value(place, "moorage_leftover_jobs") == 3


@pytest.mark.parametrize(
    "text",
    [
        "a 1",
        "# HELP moorage_a_total x\n# TYPE moorage_a_total counter\nmoorage_a_total 1",
        "# HELP moorage_a_total x\nmoorage_a_total 1\n",
        "# HELP moorage_a x\n# TYPE moorage_a counter\nmoorage_a 1\n",
        "# HELP moorage_a_total x\n# TYPE moorage_a_total gauge\nmoorage_a_total 1\n",
        "# HELP moorage_a x\n# TYPE moorage_a gauge\nmoorage_a 1\nmoorage_a 2\n",
        "# HELP moorage_a x\n# TYPE moorage_a gauge\nmoorage_b 1\n",
        '# HELP moorage_a x\n# TYPE moorage_a gauge\nmoorage_a{b="c\\d"} 1\n',
        '# HELP moorage_a x\n# TYPE moorage_a gauge\nmoorage_a{b="c" } 1\n',
        "# HELP moorage_a x\n# TYPE moorage_a gauge\nmoorage_a one\n",
        '# HELP moorage_a x\n# TYPE moorage_a histogram\nmoorage_a_bucket{le="1"} 1\n'
        "moorage_a_sum 1\nmoorage_a_count 1\n",
        '# HELP moorage_a x\n# TYPE moorage_a histogram\nmoorage_a_bucket{le="1"} 2\nmoorage_a_bucket{le="+Inf"} 1\n'
        "moorage_a_sum 1\nmoorage_a_count 1\n",
    ],
)
def test_the_reader_of_these_tests_is_strict(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        exposition.read(text)


def test_bounds_are_in_order() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))
