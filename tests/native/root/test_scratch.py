"""Each kind of scratch on a real file system that is mounted nosuid, nodev and noexec."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage.common import job as jobs
from moorage.common.command import run
from moorage.common.job import Job
from moorage.linux import loop, mounts, quota
from moorage.node.config import values
from moorage.node.config.schema import Config, Scratch, ScratchKind
from moorage.node.config.values import MIB
from moorage.root import rundir, scratch
from moorage.root.cleanup import trash

KINDS: tuple[ScratchKind, ...] = ("loop", "tmpfs", "project", "directory")
BOUNDED: tuple[ScratchKind, ...] = ("loop", "tmpfs", "project")
SIZE = 64 * MIB
QUOTA_FEATURES = ("-O", "quota,project", "-E", "quotatype=prjquota")
USER = 54321
JOB = Job(17, 0, USER, USER + 1, "alice", "n1", frozenset({"job_17"}))


@pytest.fixture
def disk(fresh_namespaces: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The jobs' directory on a disk of 512 MiB, mounted as careful sites mount theirs."""
    callspec = getattr(request.node, "callspec", None)
    with_quota = callspec is not None and callspec.params.get("kind") == "project"
    with mounted_disk(tmp_path, with_quota) as place:
        (place / "moorage").mkdir(mode=0o700)
        yield place / "moorage"


@contextmanager
def mounted_disk(below: Path, with_quota: bool) -> Iterator[Path]:
    image, place = below / "disk.img", below / "disk"
    with image.open("wb") as file:
        file.truncate(512 * MIB)
    run(["mkfs.ext4", "-q", "-F", *(QUOTA_FEATURES if with_quota else ()), image])
    place.mkdir()
    with loop.attached(image) as device:
        options = "nosuid,nodev,noexec" + (",prjquota" if with_quota else "")
        mounted = run(["mount", "-t", "ext4", "-o", options, device, place], ok=(0, 32))
    if with_quota and mounted.code:
        pytest.skip("this kernel keeps no quotas on ext4: CONFIG_QFMT_V2 is missing")
    assert not mounted.code, mounted.stderr
    try:
        yield place
    finally:
        run(["umount", "--lazy", place])


@pytest.fixture
def job(fresh_namespaces: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job with a run directory, which its own scratch goes below."""
    monkeypatch.setattr(jobs, "RUN", tmp_path / "run")
    rundir.prepare()
    rundir.make(JOB, Config().run)
    return JOB


def contents(disk: Path) -> list[Path]:
    """But for the trash, which is there before anything else, and stays."""
    return [place for place in disk.iterdir() if place.name != trash.NAME]


def as_owner(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, user=USER, group=USER + 1, extra_groups=[], cwd=cwd, capture_output=True, text=True, check=False
    )


def loops() -> set[str]:
    return {path.name for path in Path("/sys/block").glob("loop*") if (path / "loop" / "backing_file").exists()}


def only_these_loops(before: set[str], limit: float = 20.0) -> bool:
    """udev looks into each new device, and until it is done the device stays; nothing tells when that is."""
    deadline = time.monotonic() + limit
    while loops() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    return loops() <= before


@pytest.mark.parametrize("kind", KINDS)
def test_the_user_can_do_in_it_what_containers_need(kind: ScratchKind, disk: Path, job: Job) -> None:
    made = scratch.make(job, Scratch(disk, kind, SIZE))
    assert made == scratch.plan(job, Scratch(disk, kind, SIZE))
    assert not mounts.holding(job.scratch, mounts.table()).options & {"nosuid", "nodev", "noexec", "ro"}
    status = job.scratch.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (USER, USER + 1, 0o700)
    assert list(job.scratch.iterdir()) == []
    written = as_owner(
        "sh", "-c", "printf '#!/bin/sh\\necho ran' >program; chmod 755 program; ./program", cwd=job.scratch
    )
    assert (written.stdout, written.stderr) == ("ran\n", "")
    os.setxattr(job.scratch / "program", "user.overlay.opaque", b"y")
    assert (disk.parent / "moorage").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", BOUNDED)
def test_it_is_bounded(kind: ScratchKind, disk: Path, job: Job) -> None:
    scratch.make(job, Scratch(disk, kind, SIZE))
    filled = as_owner("dd", "if=/dev/zero", "of=large", "bs=1M", "count=200", cwd=job.scratch)
    assert filled.returncode != 0
    assert "No space left" in filled.stderr or "quota exceeded" in filled.stderr
    assert 0.7 * SIZE < (job.scratch / "large").stat().st_size <= SIZE


@pytest.mark.parametrize("kind", BOUNDED)
def test_so_is_the_number_of_files(kind: ScratchKind, disk: Path, job: Job) -> None:
    most = values.inodes(SIZE)
    scratch.make(job, Scratch(disk, kind, SIZE))
    made = as_owner("sh", "-c", f"seq {most + 1000} | xargs touch 2>/dev/null; ls -f | wc -l", cwd=job.scratch)
    assert 0.9 * most < int(made.stdout) <= most + 2


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_it(kind: ScratchKind, disk: Path, job: Job) -> None:
    before = loops()
    wanted = Scratch(disk, kind, SIZE)
    made = scratch.make(job, wanted)
    mounts.unmount(job.scratch)
    if kind in ("project", "directory"):
        Path(made.source).rmdir()
    scratch.release(made)
    scratch.release(made)
    assert contents(disk) == []
    assert only_these_loops(before)
    assert kind != "project" or quota.limits(disk, quota.project_of(job.id)) == (0, 0)
    again = scratch.make(job, wanted)
    assert again == made


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_when_it_cannot_be_mounted(kind: ScratchKind, disk: Path, job: Job) -> None:
    before = loops()
    job.scratch.rmdir()
    with pytest.raises(FileNotFoundError):
        scratch.make(job, Scratch(disk, kind, SIZE))
    assert contents(disk) == []
    assert only_these_loops(before)
    assert kind != "project" or quota.limits(disk, quota.project_of(job.id)) == (0, 0)


@pytest.mark.parametrize("kind", KINDS[:1] + KINDS[2:])
def test_what_is_there_is_not_taken_over(kind: ScratchKind, disk: Path, job: Job) -> None:
    wanted = Scratch(disk, kind, SIZE)
    Path(scratch.plan(job, wanted).source).symlink_to("/etc")
    with pytest.raises(FileExistsError):
        scratch.make(job, wanted)
    assert Path("/etc/passwd").exists()


def test_an_image_has_its_space_for_sure(disk: Path, job: Job) -> None:
    with pytest.raises(OSError, match="No space left") as full:
        scratch.make(job, Scratch(disk, "loop", 4096 * MIB))
    assert full.value.errno == errno.ENOSPC
    assert contents(disk) == []
    scratch.make(job, Scratch(disk, "loop", SIZE))
    (image,) = contents(disk)
    assert image.stat().st_blocks * 512 >= SIZE
    assert image.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["project", "directory"])
def test_project_quotas_are_seen_where_they_are(kind: ScratchKind, disk: Path) -> None:
    assert quota.enforced(disk) is (kind == "project")


@pytest.mark.parametrize("kind", ["loop", "directory"])
def test_until_it_is_handed_over_its_user_can_change_nothing_in_it(
    kind: ScratchKind, disk: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job of his may be watching; what he put there would make root stumble."""
    seen: list[str] = []

    def hand_over(of: Job) -> None:
        seen.append(as_owner("sh", "-c", "mv lost+found x; touch y", cwd=of.scratch).stderr)
        real(of)

    real = scratch._hand_over
    monkeypatch.setattr(scratch, "_hand_over", hand_over)
    scratch.make(job, Scratch(disk, kind, SIZE))
    assert "Permission denied" in seen[0]
    assert list(job.scratch.iterdir()) == []
