"""`moorage run` where there is nothing to bring up: one line, and the job fails."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from moorage import job, runner
from moorage.crew import Words
from moorage.errors import UsageError
from moorage.mooring import Mooring
from moorage.progress import Progress
from moorage.runner import Runner
from moorage.watch import Signals, Watch

ENVIRON = {"SLURM_JOB_ID": "17", "SLURM_JOB_NUM_NODES": "1", "PATH": "/no/such/place"}
FIELDS = {
    "job": 17,
    "restart": 0,
    "node": "n1",
    "spec": {"enabled": True, "cluster": "none", "version": None, "uplink": None},
    "uplink": "pasta",
    "podman": "/usr/bin/podman",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "RUN", tmp_path)
    (tmp_path / "17").mkdir()
    return tmp_path / "17"


@pytest.mark.parametrize("words", [[], ["--"]])
def test_nothing_to_run(words: list[str]) -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        runner.main(words)


@pytest.mark.parametrize(
    ("files", "environ", "line"),
    [
        ({}, {}, "this is no job of Slurm's: use it in a job that was submitted with --k8s"),
        ({"refusal": "you have no subuids: ask for some"}, ENVIRON, "you have no subuids: ask for some"),
        ({}, ENVIRON, "the Prolog has not prepared this node for job 17: tell"),
        ({"job.json": json.dumps(FIELDS)}, ENVIRON | {"SLURM_HET_SIZE": "2"}, "a heterogeneous job cannot be moored"),
    ],
)
def test_one_line_and_failure(place: Path, files: dict[str, str], environ: dict[str, str], line: str) -> None:
    for name, text in files.items():
        (place / name).write_text(text)
    output = io.StringIO()
    assert runner.run(["script"], environ, Progress(output)) == 1
    (said,) = output.getvalue().splitlines()
    assert said.startswith(f"moorage: {line}")


@pytest.mark.parametrize(
    ("usage", "line"),
    [
        ({}, "started in 2.5 s, was up for 0.0 s; nothing is known of what was used"),
        (
            {"n1": {"cpu_seconds": 22.04, "memory_peak": 414187520}},
            "started in 2.5 s, was up for 0.0 s; used 22.0 s of CPU time, at most 395 MiB of memory",
        ),
        (
            {"n1": {"cpu_seconds": 40, "memory_peak": 1 << 30}, "n2": {"cpu_seconds": 41.0, "memory_peak": 2 << 30}},
            "started in 2.5 s, was up for 0.0 s; used 1:21 of CPU time, at most 2.0 GiB of memory",
        ),
        ({"n1": {"cpu_seconds": 1, "memory_peak": 0}}, "started in 2.5 s, was up for 0.0 s; used 1.0 s of CPU time"),
    ],
)
def test_account(place: Path, usage: dict[str, dict[str, float]], line: str) -> None:
    (place / "job.json").write_text(json.dumps(FIELDS))
    clock = iter([0.0, 2.5])
    progress = Progress(io.StringIO(), lambda: next(clock))
    with Signals([]) as signals, Watch() as watch:
        running = Runner(Mooring.load(17), 1, ENVIRON, progress, signals, watch)
        running.start_up = 2.5
        running.crew.words = Words(usage=usage)
        assert running._account() == line


@pytest.mark.commands("srun", "false")
class TestBundle:
    def test_what_cannot_start_says_why_and_where_more_is(self, place: Path, tmp_path: Path) -> None:
        srun = tmp_path / "srun"
        srun.write_text("#!/bin/sh\necho 'srun: error: the password=hunter2 is wrong' >&2\nexit 1\n")
        srun.chmod(0o755)
        (place / "job.json").write_text(json.dumps(FIELDS | {"srun": str(srun)}))
        output = io.StringIO()
        environ = ENVIRON | {"SLURM_SUBMIT_DIR": str(tmp_path), "PATH": "/bin:/usr/bin"}
        assert runner.run(["false"], environ, Progress(output)) == 1
        last = output.getvalue().splitlines()[-1]
        kept = tmp_path / "moorage-17.log"
        assert "the step of the agents has ended: srun: error:" in last
        assert last.endswith(f"(more in {kept})")
        assert "starting the agents" in kept.read_text()
        assert "hunter2" not in kept.read_text()
