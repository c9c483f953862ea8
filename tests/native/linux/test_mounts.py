"""Mounts for a job, made for real in a mount namespace of the test's own."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from moorage.common.command import run
from moorage.linux import mounts

pytestmark = pytest.mark.usefixtures("fresh_namespaces")


def options(point: Path) -> frozenset[str]:
    return mounts.holding(point, mounts.table()).options


@pytest.fixture
def strict(fresh_namespaces: None, tmp_path: Path) -> Path:
    """A file system mounted as careful sites mount their scratch."""
    place = tmp_path / "strict"
    place.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "nosuid,nodev,noexec", "strict", place])
    return place


def test_a_bind_is_free_of_what_its_source_carries(strict: Path, tmp_path: Path) -> None:
    source, point = strict / "source", tmp_path / "point"
    source.mkdir()
    point.mkdir()
    assert options(source) >= {"nosuid", "nodev", "noexec"}
    mounts.bind(source, point)
    assert not options(point) & {"nosuid", "nodev", "noexec", "ro"}
    assert options(source) >= {"nosuid", "nodev", "noexec"}
    program = point / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    assert run([program]).stdout == "ran\n"


def test_what_is_mounted_in_a_bind_is_not_in_its_source(strict: Path, tmp_path: Path) -> None:
    run(["mount", "--make-shared", strict])
    source, point = strict / "source", tmp_path / "point"
    (source / "inner").mkdir(parents=True)
    point.mkdir()
    mounts.bind(source, point)
    mounts.mount_tmpfs(point / "inner", size=1 << 20, inodes=100, uid=0, gid=0, mode=0o700)
    assert (point / "inner") in mounts.below(tmp_path)
    assert (source / "inner") not in mounts.below(tmp_path)


def test_a_bind_that_fails_leaves_no_mount(strict: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        mounts.bind(strict, tmp_path / "missing")
    assert mounts.below(tmp_path) == [strict]


def test_a_tmpfs_has_bounds(tmp_path: Path) -> None:
    mounts.mount_tmpfs(
        tmp_path, size=1 << 20, inodes=8, uid=1234, gid=2345, mode=0o711, flags=mounts.NOSUID | mounts.NODEV
    )
    status = tmp_path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (1234, 2345, 0o711)
    assert options(tmp_path) >= {"nosuid", "nodev"}
    with pytest.raises(OSError, match="No space left") as full:
        (tmp_path / "large").write_bytes(bytes(2 << 20))
    assert full.value.errno == errno.ENOSPC
    assert run(["touch", *(tmp_path / str(number) for number in range(20))], ok=(1,)).stderr.count("No space left") > 10


def test_an_unmount_follows_no_link(tmp_path: Path) -> None:
    point, link = tmp_path / "point", tmp_path / "link"
    point.mkdir()
    mounts.mount_tmpfs(point, size=1 << 20, inodes=100, uid=0, gid=0, mode=0o700)
    link.symlink_to(point)
    with pytest.raises(OSError, match="link"):
        mounts.unmount(link)
    assert mounts.below(tmp_path) == [point]
    mounts.unmount(point)
    assert mounts.below(tmp_path) == []


def test_a_busy_mount_goes_only_lazily(tmp_path: Path) -> None:
    mounts.mount_tmpfs(tmp_path, size=1 << 20, inodes=100, uid=0, gid=0, mode=0o700)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="busy"):
            mounts.unmount(tmp_path)
        mounts.unmount(tmp_path, lazy=True)
        assert mounts.below(tmp_path) == []
    finally:
        os.close(descriptor)
