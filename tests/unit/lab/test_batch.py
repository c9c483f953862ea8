"""Waiting for what a job of the lab says."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from moorage.common import command
from moorage.common.command import Completed
from moorage.common.errors import MoorageError
from support.fakes import FakeCommand
from virtual.guest.shell import Shell
from virtual.jobs.batch import Job

Fake = Callable[..., FakeCommand]
pytestmark = pytest.mark.commands("timeout", "cat")


class Here:
    """This machine in the place of a guest."""

    def run(self, argv: Sequence[str], *, user: str, limit: float = 60.0, ok: Any = (0,)) -> Completed:  # noqa: ANN401
        assert user == "alice"
        return command.run(argv, env={"PATH": os.environ["PATH"]}, limit=limit, ok=ok)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(Job, "place", property(lambda _: str(tmp_path / "out")))
    return Job(cast("Shell", Here()), "7", "alice")


def test_what_it_has_said_is_enough(job: Job, fake_command: Fake) -> None:
    squeue = fake_command("squeue")
    Path(job.place).write_text("up\nready\n")
    job.wait_said("^ready")
    assert squeue.calls == []


@pytest.mark.parametrize(
    ("code", "stderr"), [(0, ""), (1, "slurm_load_jobs error: Invalid job id specified")], ids=["ended", "forgotten"]
)
def test_it_is_not_waited_for_beyond_its_end(job: Job, fake_command: Fake, code: int, stderr: str) -> None:
    fake_command("squeue", stderr=stderr, code=code)
    Path(job.place).write_text("failed\n")
    with pytest.raises(MoorageError, match=r"job 7 has not said 'ready' at its end; its output: 'failed\\n'"):
        job.wait_said("ready", limit=20)


def test_its_last_words_count(job: Job, fake_command: Fake) -> None:
    """They are there when it ends, and were not before."""
    Path(job.place).write_text("up\n")
    squeue = fake_command("squeue")
    squeue.path.write_text(f"#!/bin/sh\necho ready >>{job.place}\n")
    job.wait_said("ready", limit=20)


@pytest.mark.parametrize(
    ("stdout", "stderr", "code"),
    [("7 node job alice R 0:01 1 n1\n", "", 0), ("", "slurm_load_jobs error: Unable to contact slurm controller", 1)],
    ids=["it runs", "nobody knows"],
)
def test_while_it_may_be_there_it_is_waited_for(
    job: Job, fake_command: Fake, stdout: str, stderr: str, code: int
) -> None:
    squeue = fake_command("squeue", stdout, stderr, code)
    Path(job.place).write_text("up\n")
    with pytest.raises(MoorageError, match="has not said 'ready' after 3 s"):
        job.wait_said("ready", limit=3)
    assert squeue.calls


def test_output_that_is_nowhere_yet_is_waited_for(job: Job, fake_command: Fake) -> None:
    fake_command("squeue")
    with pytest.raises(MoorageError, match="after 3 s"):
        job.wait_said("ready", limit=3)
