from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from moorage.cli import sweep as verb
from moorage.common import job
from moorage.common.deadline import Deadline
from moorage.common.errors import UsageError, UserError
from moorage.common.job import Job
from moorage.linux.process import Process
from moorage.node.config import load, schema
from moorage.root import lock
from moorage.root import state as states
from moorage.root.cleanup import sweep
from moorage.root.cleanup.end_of_job import Leftover
from moorage.root.cleanup.sweep import Found
from moorage.root.lock import Lock
from moorage.root.net import names
from moorage.root.records.record import Ending
from moorage.root.state import Limits, State, forget, jobs

LIMITS = Limits(0, 0, 0, 0, 0, 0, 0)
OURS = Leftover("mount", "/run/moorage/17", "busy")
HERE = Process.current()
GONE = Process(os.getpid(), 1)
EARLIER = "00000000-0000-0000-0000-000000000000"


def state(number: int, **fields: object) -> State:
    begun = State.begin(Job(number, 0, 1000, 1000, "alice", "n1", frozenset({f"job_{number}"})), LIMITS)
    changed = dataclasses.replace(begun, **fields)  # type: ignore[arg-type]
    changed.save()
    return changed


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "STATE", tmp_path / "jobs")
    monkeypatch.setattr(names, "jobs", list)
    monkeypatch.setattr(names, "links_of", lambda _: [])
    return tmp_path / "jobs"


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    done: list[int] = []

    def clean_up_held(number: int, held: Lock, deadline: Deadline, ending: Ending) -> list[Leftover]:
        assert ending.by == "sweep"
        done.append(number)
        forget(number)
        held.remove()
        return []

    monkeypatch.setattr(sweep, "clean_up_held", clean_up_held)
    return done


def swept(act: bool = True, besides: int | None = None) -> list[Found]:
    return list(sweep.sweep(Deadline(10), act=act, besides=besides))


@pytest.mark.parametrize(
    ("fields", "done", "said"),
    [
        ({"owner": HERE}, False, "is in use"),
        ({"owner": GONE, "agent": HERE}, False, "is in use"),
        ({"owner": GONE}, True, "was removed: its processes are gone"),
        ({"owner": GONE, "agent": GONE}, True, "was removed: its processes are gone"),
        ({"boot": EARLIER, "owner": HERE, "agent": HERE}, True, "was removed: the node has booted since"),
    ],
)
def test_only_what_nobody_answers_for(fields: dict[str, object], done: bool, said: str, cleared: list[int]) -> None:
    state(17, **fields)
    (found,) = swept()
    assert (cleared, found.touched, str(found)) == ([17] if done else [], done, f"job 17 {said}")


def test_nothing_is_done_unless_it_is_wanted(cleared: list[int]) -> None:
    state(17, boot=EARLIER)
    (found,) = swept(act=False)
    assert (str(found), found.touched) == ("job 17 would be removed: the node has booted since", False)
    assert cleared == []
    assert jobs() == [17]


def test_a_lock_that_is_held_is_respected(cleared: list[int]) -> None:
    """Whatever the state says."""
    state(17, boot=EARLIER)
    with lock.locked(17):
        assert [str(found) for found in swept()] == ["job 17 is in use"]
    assert cleared == []


def test_one_does_not_keep_the_others(cleared: list[int]) -> None:
    for number in (16, 17, 18, 19):
        state(number, boot=EARLIER)
    with lock.locked(17):
        swept(besides=19)
    assert cleared == [16, 18]


def test_a_state_that_cannot_be_understood_is_left_alone(cleared: list[int]) -> None:
    state(17).job.state.write_text("?")
    (found,) = swept()
    assert "is left alone: " in str(found)
    assert "cannot be understood" in str(found)
    assert cleared == []


def test_a_job_that_ends_meanwhile(cleared: list[int], directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state(17, boot=EARLIER)
    monkeypatch.setattr(states, "jobs", lambda: [17, 18])
    found = swept()
    assert str(found[1]) == "job 18 has just gone"
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (True, "job 18 was removed: only its links are known"),
        (False, "job 18 would be removed: only its links are known"),
    ],
)
def test_links_of_a_job_of_which_nothing_is_known(
    cleared: list[int], monkeypatch: pytest.MonkeyPatch, act: bool, said: str
) -> None:
    state(17, owner=HERE)
    monkeypatch.setattr(names, "jobs", lambda: [17, 18])
    monkeypatch.setattr(names, "links_of", lambda number: [f"moor{number}v"])
    assert [str(found) for found in swept(act)] == ["job 17 is in use", said]
    assert cleared == [18] * act


def test_there_is_a_limit(cleared: list[int]) -> None:
    state(17, boot=EARLIER)
    assert list(sweep.sweep(Deadline(0), act=True)) == []


class TestCommand:
    @pytest.fixture(autouse=True)
    def root(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The command sees root; whoever runs the test owns the state files, and the check of their owner sees that."""
        monkeypatch.setattr(verb, "os", SimpleNamespace(geteuid=lambda: 0))

    def test_by_itself_it_only_says(self, cleared: list[int], capsys: pytest.CaptureFixture[str]) -> None:
        state(17, boot=EARLIER)
        assert verb.main([]) == 0
        assert capsys.readouterr().out == "job 17 would be removed: the node has booted since\n"
        assert cleared == []

    def test_told_to_it_does(self, cleared: list[int], capsys: pytest.CaptureFixture[str]) -> None:
        state(17, boot=EARLIER)
        assert verb.main(["--now"]) == 0
        assert capsys.readouterr().out == "job 17 was removed: the node has booted since\n"
        assert cleared == [17]

    def test_for_programs(self, cleared: list[int], capsys: pytest.CaptureFixture[str]) -> None:
        state(17, boot=EARLIER)
        assert verb.main(["--json"]) == 0
        why = "the node has booted since"
        one = {"job": 17, "verdict": f"would be removed: {why}", "why": why, "cleaned_up": False, "left": []}
        assert json.loads(capsys.readouterr().out) == {"schema": 1, "acted": False, "jobs": [one]}
        assert cleared == []

    def test_prometheus_is_told_once_it_is_done(
        self, cleared: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = schema.Config(metrics=schema.Metrics(directory=tmp_path))
        monkeypatch.setattr(load, "examine", lambda: (site, []))
        state(17, boot=EARLIER)
        verb.main([])
        assert not (tmp_path / "moorage.prom").exists()
        verb.main(["--now"])
        assert "moorage_leftover_jobs 0\n" in (tmp_path / "moorage.prom").read_text()

    def test_prometheus_is_told_of_what_somebody_else_has_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By hand, as the doctor says for a state that nobody understands."""
        site = schema.Config(metrics=schema.Metrics(directory=tmp_path))
        monkeypatch.setattr(load, "examine", lambda: (site, []))
        path = state(17).job.state
        for text, left in (("?", 1), (None, 0)):
            path.write_text(text) if text else path.unlink()
            verb.main(["--now"])
            assert f"moorage_leftover_jobs {left}\n" in (tmp_path / "moorage.prom").read_text()

    @pytest.mark.parametrize(("ours", "code"), [(True, 1), (False, 0)])
    def test_what_is_left_is_its_exit_code(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ours: bool, code: int
    ) -> None:
        state(17, boot=EARLIER)
        monkeypatch.setattr(sweep, "clean_up_held", lambda *_: [dataclasses.replace(OURS, ours=ours)])
        assert verb.main(["--now"]) == code
        assert "as far as it could be: the node has booted since; mount /run/moorage/17 is left: busy" in (
            capsys.readouterr().out
        )

    def test_it_is_roots(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(verb, "os", SimpleNamespace(geteuid=lambda: 1000))
        with pytest.raises(UserError, match="only root"):
            verb.main([])
        assert not issubclass(UserError, UsageError)
