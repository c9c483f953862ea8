"""How far a start has come: what the job's processes may tell of it, and what follows from that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.common import job, phases
from moorage.common.errors import MoorageError
from moorage.common.job import Job
from moorage.root.records import start_log
from moorage.root.records.start_log import Course, Step, hear, note, read

JOB = Job(17, 0, 1000, 1000, "alice", "n1", frozenset({"job_17"}))


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "RUN", tmp_path)
    JOB.run.mkdir()
    return JOB.run


def of(*steps: tuple[float, str]) -> Course:
    return Course(tuple(Step(at, word) for at, word in steps))


WHOLE = of((100, "prolog"), (100.5, "launch"), (102, "cgroup"), (102.1, "podman"), (103, "readiness"), (110, "ready"))


def test_what_is_noted_is_read() -> None:
    note(JOB, phases.PROLOG, at=100.0)
    assert hear(JOB, {"word": "podman"}) is not None
    failed = hear(JOB, {"word": "failed", "cause": "a\nb"})
    assert failed is not None
    assert [(step.word, step.cause) for step in read(17).steps] == [("prolog", ""), ("podman", ""), ("failed", "a b")]
    assert failed.at >= read(17).steps[1].at > 0


def test_the_same_again_is_nothing_new() -> None:
    """A call whose answer was lost is made again."""
    assert hear(JOB, {"word": "podman"})
    assert hear(JOB, {"word": "podman"}) is None
    assert len(read(17).steps) == 1


@pytest.mark.parametrize("word", ["", "prolog", "launch", "PODMAN", "podman ", "x" * 4000, "podman\n", "../x"])
def test_no_other_word_is_taken(run: Path, word: str) -> None:
    with pytest.raises(MoorageError, match="no such step"):
        hear(JOB, {"word": word})
    assert not list(run.iterdir())


def test_there_is_an_end_to_what_can_be_told() -> None:
    for number in range(start_log.MOST):
        hear(JOB, {"word": ("podman", "kind")[number % 2], "cause": "x" * 4000})
    with pytest.raises(MoorageError, match="more has been told"):
        hear(JOB, {"word": "ready"})
    known = read(17)
    assert len(known.steps) == start_log.MOST
    assert {len(step.cause) for step in known.steps} == {phases.LONGEST_CAUSE}


@pytest.mark.parametrize("content", ["", "?", "{}", "[]\n", '{"at": 1}\n', '{"at": 1, "word": "a", "x": 2}\n', "\0"])
def test_what_makes_no_sense_is_nothing(run: Path, content: str) -> None:
    (run / start_log.NAME).write_text(content)
    assert read(17) == Course()


def test_a_line_that_was_cut_off_hides_no_other(run: Path) -> None:
    note(JOB, "prolog", at=5.0)
    with (run / start_log.NAME).open("a") as file:
        file.write('{"at": 7, "wo\n')
    step = note(JOB, "podman", at=8.5)
    assert [one.word for one in read(17).steps] == ["prolog", "podman"]
    assert read(17).since(step) == 3.5
    assert Course().since(step) == 0


def test_what_others_can_write_is_not_believed(run: Path) -> None:
    note(JOB, "podman")
    (run / start_log.NAME).chmod(0o666)
    assert read(17) == Course()


def test_nobody_else_reads_it(run: Path) -> None:
    note(JOB, "podman")
    assert (run / start_log.NAME).stat().st_mode & 0o777 == 0o600


def test_phases_take_until_the_next() -> None:
    assert WHOLE.spans == {"prolog": 0.5, "launch": 1.5, "cgroup": 0.1, "podman": 0.9, "readiness": 7.0}
    assert (WHOLE.outcome, WHOLE.seconds, WHOLE.reached) == ("ready", 10.0, "readiness")


@pytest.mark.parametrize(
    ("steps", "outcome", "reached", "seconds", "orderly"),
    [
        ((), "unfinished", "", None, False),
        (((1, "prolog"), (2, "launch")), "unfinished", "launch", None, False),
        (((1, "prolog"), (2, "launch"), (3, "podman"), (4, "failed")), "failed", "podman", None, False),
        (((1, "prolog"), (2, "launch"), (3, "podman"), (4, "ready"), (9, "down")), "ready", "podman", 3, True),
        (((1, "prolog"), (4, "ready"), (9, "failed")), "ready", "prolog", 3, False),
        (((1, "prolog"), (4, "failed"), (9, "ready")), "failed", "prolog", 8, False),
        (((1, "prolog"), (2, "podman"), (3, "kind"), (5, "podman"), (6, "ready")), "ready", "podman", 5, False),
    ],
)
def test_what_became_of_it(
    steps: tuple[tuple[float, str], ...], outcome: str, reached: str, seconds: float | None, orderly: bool
) -> None:
    known = of(*steps)
    assert (known.outcome, known.reached, known.seconds, known.orderly) == (outcome, reached, seconds, orderly)


def test_a_phase_that_comes_twice_is_one() -> None:
    assert of((1, "podman"), (2, "kind"), (4, "podman"), (8, "ready")).spans == {"podman": 5, "kind": 2}


def test_how_long_it_was_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_log, "now", lambda: 500.0)
    assert of((1, "prolog"), (4, "ready"), (9, "down")).up == 5
    assert of((1, "prolog"), (4, "ready")).up == 496
    assert of((1, "prolog")).up is None


def test_every_phase_has_a_word_of_its_own() -> None:
    assert len({phase.word for phase in phases.ALL}) == len({phase.text for phase in phases.ALL}) == len(phases.ALL)
    assert not {phase.word for phase in phases.ALL} & {phases.OTHER, phases.PROLOG, phases.LAUNCH, *phases.ENDS}


def test_words_of_the_course_are_told_apart() -> None:
    assert not {phases.PROLOG, phases.LAUNCH} & set(phases.TOLD)
    assert all(start_log.told(Step(1, word)) for word in phases.TOLD)
    assert "the disk" in start_log.told(Step(1, "failed", "the disk"))
    assert json.dumps(phases.PHASES)
