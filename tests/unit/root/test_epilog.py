from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.common import job
from moorage.common.deadline import Deadline
from moorage.root import epilog
from moorage.root.cleanup.end_of_job import Leftover
from moorage.root.cleanup.sweep import Found
from moorage.root.records.record import Ending
from moorage.root.state import About, Limits, State
from support.fakes import FakeCommand

OURS = Leftover("mount", "/run/moorage/17", "busy")
HIS = Leftover("process", "4711 (sh)", "it does not end", ours=False)
HOOK = Path(__file__).parents[3] / "epilog.d/50-moorage"


@pytest.mark.parametrize(("left", "code"), [([], 0), ([HIS], 0), ([HIS, HIS], 0), ([OURS], 1), ([HIS, OURS], 1)])
def test_only_what_root_made_is_held_against_the_node(left: list[Leftover], code: int) -> None:
    assert epilog.exit_code(left) == code


@pytest.fixture
def cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """What the Epilog was about to clear, and in what time."""
    asked: list[tuple[int, float]] = []

    def clear(number: int, deadline: Deadline, ending: Ending) -> list[Leftover]:
        asked.append((number, round(deadline.left)))
        return [HIS, OURS]

    monkeypatch.setattr(job, "STATE", tmp_path / "jobs")
    monkeypatch.setattr(epilog, "clean_up", clear)
    monkeypatch.setattr(
        epilog, "sweep", lambda *_, **__: iter([Found(16, "was removed", True), Found(15, "is in use")])
    )
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    return asked


def test_what_is_left_is_named(cleared: list[tuple[int, float]], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        epilog.main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "moorage-epilog: job 17: process 4711 (sh) is left: it does not end [M-LEFT-1]\n" in said
    assert "moorage-epilog: job 17: mount /run/moorage/17 is left: busy [M-LEFT-1]\n" in said
    assert "moorage: job 16 epilog: job 16 was removed\n" in said
    assert "job 15" not in said


@pytest.mark.parametrize(("state", "limit"), [("none", 60), ("good", 90), ("bad", 60)])
def test_the_limit_is_the_jobs(cleared: list[tuple[int, float]], tmp_path: Path, state: str, limit: int) -> None:
    if state == "good":
        limits = Limits(0, 0, 0, 0, 0, 0, 90)
        State.begin(job.Job(17, 0, 1000, 1000, "alice", "n1", frozenset({"job_17"})), limits).save()
    elif state == "bad":
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs/17.json").write_text("?")
    with pytest.raises(SystemExit):
        epilog.main()
    assert cleared == [(17, limit)]


def test_where_the_site_wants_it_prometheus_is_told(cleared: list[tuple[int, float]], tmp_path: Path) -> None:
    """The job's own state says where: the configuration may be another one by now."""
    about = About(0.0, {}, 30, str(tmp_path / "textfile"))
    (tmp_path / "textfile").mkdir()
    known = job.Job(17, 0, 1000, 1000, "alice", "n1", frozenset({"job_17"}))
    State.begin(known, Limits(0, 0, 0, 0, 0, 0, 90), None, about=about).save()
    with pytest.raises(SystemExit):
        epilog.main()
    assert "moorage_clusters_running" in (tmp_path / "textfile/moorage.prom").read_text()


@pytest.mark.parametrize("number", [None, "", "x", "0", "-1", "17/../18", "99999999999"])
def test_without_a_job_nothing_is_done(
    cleared: list[tuple[int, float]], monkeypatch: pytest.MonkeyPatch, number: str | None
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID")
    if number is not None:
        monkeypatch.setenv("SLURM_JOB_ID", number)
    with pytest.raises(SystemExit) as ended:
        epilog.main()
    assert ended.value.code == 1
    assert cleared == []


@pytest.fixture
def hook(tmp_path: Path, fake_command: Callable[..., FakeCommand]) -> Callable[..., list[list[str]]]:
    """Runs the hook with this environment and nothing else; how it called Python."""
    python = fake_command("python3")
    text = HOOK.read_text()
    places = {"/opt/moorage/bin": python.path.parent, "/var/lib/moorage/jobs": tmp_path, "/run/moorage": tmp_path}
    for absolute, here in places.items():
        assert absolute in text
        text = text.replace(absolute, str(here))
    (tmp_path / "hook").write_text(text)

    def call(**environment: str) -> list[list[str]]:
        subprocess.run([shutil.which("sh") or "sh", tmp_path / "hook"], env=environment, check=True)
        return python.calls

    return call


CALLED = [["-I", "-m", "moorage.epilog"]]


@pytest.mark.commands("sh", "readlink")
@pytest.mark.parametrize(
    ("environment", "calls"),
    [
        ({}, []),
        ({"SLURM_JOB_ID": "18"}, []),
        ({"SLURM_JOB_ID": "18", "SPANK_K8S": "0"}, []),
        ({"SLURM_JOB_ID": "18", "SPANK_K8S": ""}, []),
        ({"SLURM_JOB_ID": "18", "SPANK_K8S": "1"}, CALLED),
        ({"SLURM_JOB_ID": "18", "SPANK_K8S": "cluster=none"}, CALLED),
        ({"SLURM_JOB_ID": "18", "SPANK_K8S": "-n 1 -o x = x"}, CALLED),
        ({"SLURM_JOB_ID": "17"}, CALLED),
        ({"SLURM_JOB_ID": "17", "SPANK_K8S": "0"}, CALLED),
    ],
)
def test_most_jobs_start_no_python(
    hook: Callable[..., list[list[str]]], tmp_path: Path, environment: dict[str, str], calls: list[list[str]]
) -> None:
    (tmp_path / "17.json").touch()
    assert hook(**environment) == calls


@pytest.mark.commands("sh", "readlink")
def test_a_job_ends_with_the_release_that_it_began_with(hook: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    """Another one may have been installed since."""
    (tmp_path / "versions/1/bin").mkdir(parents=True)
    began = FakeCommand(tmp_path / "versions/1/bin", "python3")
    (tmp_path / "17").mkdir()
    (tmp_path / "17/release").symlink_to(tmp_path / "versions/1")
    assert hook(SLURM_JOB_ID="17", SPANK_K8S="1") == []
    assert began.calls == CALLED
    (tmp_path / "versions").rename(tmp_path / "gone")
    assert hook(SLURM_JOB_ID="17", SPANK_K8S="1") == CALLED


@pytest.mark.parametrize("left", [[], [OURS]])
def test_what_other_jobs_have_left_is_not_this_ones(
    cleared: list[tuple[int, float]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    left: list[Leftover],
) -> None:
    monkeypatch.setattr(epilog, "clean_up", lambda *_: left)
    monkeypatch.setattr(epilog, "sweep", lambda *_, **__: 1 / 0)
    with pytest.raises(SystemExit) as ended:
        epilog.main()
    assert ended.value.code == len(left)
    assert "job 17 epilog: other jobs were not swept: ZeroDivisionError" in capsys.readouterr().err
