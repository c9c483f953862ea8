"""A run directory, made for real, and what its user can and cannot do there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moorage.common import job as jobs
from moorage.common.errors import MoorageError
from moorage.common.job import Job
from moorage.linux import mounts
from moorage.node.config.schema import Run
from moorage.node.config.values import MIB
from moorage.root import rundir

USER = 54321
JOB = Job(17, 0, USER, USER + 1, "alice", "n1", frozenset({"job_17"}))
LIMITS = Run(size=4 * MIB, inodes=1024)


@pytest.fixture
def job(fresh_namespaces: None, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job whose directory is kept from others by its own mode, and by nothing above it."""
    mounts.mount_tmpfs(Path("/mnt"), size=64 * MIB, inodes=8192, uid=0, gid=0, mode=0o755)
    monkeypatch.setattr(jobs, "RUN", Path("/mnt/run"))
    rundir.prepare()
    return JOB


def as_somebody(
    uid: int, script: str, cwd: Path = Path("/"), group: int | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", script],
        user=uid,
        group=uid + 1 if group is None else group,
        extra_groups=[],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_whose(job: Job) -> None:
    rundir.make(job, LIMITS)
    found = {
        path.name: (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o7777)
        for path in job.run.iterdir()
        if not path.is_symlink()
    }
    assert found == {
        "user": (USER, USER + 1, 0o700),
        "scratch": (0, 0, 0o700),
        "etc": (0, 0, 0o755),
        "bin": (0, 0, 0o755),
        "helpers": (0, 0, 0o755),
    }
    assert (job.run / "release").readlink() == Path(sys.prefix)
    assert (job.run / "bin/moorage").readlink() == Path("../release/bin/moorage")
    assert (job.run.stat().st_uid, job.run.stat().st_mode & 0o7777) == (0, 0o710)
    assert mounts.holding(job.run, mounts.table()).options >= {"nosuid", "nodev"}


@pytest.mark.parametrize(
    "script",
    [
        "ls {run}",
        "touch {run}/new",
        "mv {run}/etc {run}/other",
        "rmdir {run}/bin",
        "touch {run}/bin/podman",
        "touch {run}/scratch/new",
        "rmdir {run}/user",
        "mv {run}/user {run}/mine",
    ],
)
@pytest.mark.parametrize("uid", [USER, USER + 100])
def test_what_nobody_may(job: Job, uid: int, script: str) -> None:
    rundir.make(job, LIMITS)
    assert "Permission denied" in as_somebody(uid, script.format(run=job.run)).stderr


def test_only_the_user_enters_his_part(job: Job) -> None:
    rundir.make(job, LIMITS)
    assert as_somebody(USER, f"touch {job.user_run}/new").returncode == 0
    assert "Permission denied" in as_somebody(USER + 100, f"ls {job.user_run}").stderr


@pytest.mark.parametrize("group", [USER + 1, 0])
def test_nobody_else_reads_what_is_for_the_user(job: Job, group: int) -> None:
    """Not even who is in his group."""
    rundir.make(job, LIMITS)
    (job.run / "etc/containers.conf").write_text("his")
    script = f"cat {job.run}/etc/containers.conf || ls {job.run}/bin"
    assert as_somebody(USER, script).stdout == "his"
    assert "Permission denied" in as_somebody(USER + 100, script, group=group).stderr


def test_its_bytes_are_bounded(job: Job) -> None:
    rundir.make(job, LIMITS)
    assert "No space left" in as_somebody(USER, "dd if=/dev/zero of=large bs=1M count=8", job.user_run).stderr
    assert (job.user_run / "large").stat().st_size <= LIMITS.size


def test_its_files_are_bounded(job: Job) -> None:
    rundir.make(job, LIMITS)
    assert "No space left" in as_somebody(USER, "seq 2000 | xargs touch", job.user_run).stderr
    assert len(list(job.user_run.iterdir())) <= LIMITS.inodes


def test_two_runs_of_one_job_do_not_mix(job: Job) -> None:
    rundir.make(job, LIMITS)
    with pytest.raises(FileExistsError):
        rundir.make(job, LIMITS)


def test_a_refusal_is_read_by_the_user_and_written_by_nobody(job: Job) -> None:
    rundir.refuse(job, "no subuids:\nask\x1b[2J for some\n")
    assert as_somebody(USER, f"cat {job.refusal}").stdout == "no subuids: ask [2J for some\n"
    assert "Permission denied" in as_somebody(USER + 100, f"cat {job.refusal}").stderr
    assert "Permission denied" in as_somebody(USER, f"echo all is well >{job.refusal}").stderr
    assert {path.name for path in job.run.iterdir()} == {"refusal", "release"}
    # Another node has it told from here.
    assert as_somebody(USER, f"readlink {job.run}/release").stdout == f"{sys.prefix}\n"
    assert mounts.below(job.run) == []
    rundir.refuse(job, "another")
    assert job.refusal.read_text() == "another\n"


@pytest.mark.parametrize(
    "planted", ["mkdir {run}; chown 54321 {run}", "mkdir {run}; chmod 777 {run}", "ln -s /tmp {run}", "touch {run}"]
)
def test_what_is_not_roots_own_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    monkeypatch.setattr(jobs, "RUN", tmp_path / "planted")
    subprocess.run(["sh", "-c", planted.format(run=tmp_path / "planted")], check=True)
    with pytest.raises((MoorageError, FileExistsError)):
        rundir.prepare()
