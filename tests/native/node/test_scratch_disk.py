"""Where scratch may lie: real directories, real mounts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from moorage.common import command
from moorage.linux import mounts
from moorage.node.config.schema import Scratch, ScratchKind
from moorage.node.config.values import MIB
from moorage.node.scratch_disk import check

PLACE = Path("/mnt/disk/moorage")


def shell(script: str) -> None:
    subprocess.run(["sh", "-euc", script], check=True, cwd="/mnt")


@pytest.fixture(autouse=True)
def disk(fresh_namespaces: None) -> None:
    mounts.mount_tmpfs(Path("/mnt"), size=64 * MIB, inodes=8192, uid=0, gid=0, mode=0o755)
    shell("mkdir disk; mount -t tmpfs -o size=128m,nr_inodes=10000,mode=1777 disk disk; mkdir -m 700 disk/moorage")


def findings(kind: ScratchKind = "directory", size: int = 64 * MIB, place: Path = PLACE) -> list[str]:
    return [str(finding) for finding in check(Scratch(place, kind, size))]


@pytest.mark.parametrize("kind", ["directory", "loop", "tmpfs"])
def test_a_good_place(kind: ScratchKind) -> None:
    assert findings(kind) == []


@pytest.mark.parametrize(
    ("breakage", "words"),
    [
        ("rmdir disk/moorage", "there is no /mnt/disk/moorage: install -d -m 700 /mnt/disk/moorage"),
        ("umount disk", "there is no /mnt/disk/moorage"),
        ("rm -r disk/moorage; touch disk/moorage", "/mnt/disk/moorage is not a directory"),
        ("mv disk/moorage disk/other; ln -s other disk/moorage", "/mnt/disk/moorage is not a directory"),
        ("chmod 777 disk/moorage", "others than root can change /mnt/disk/moorage: chown root /mnt/disk/moorage"),
        ("chmod 1777 disk/moorage", "others than root can change /mnt/disk/moorage"),
        ("chmod 711 disk/moorage", "others than root can enter /mnt/disk/moorage: chmod 700 /mnt/disk/moorage"),
        ("chown 1000 disk/moorage", "others than root can change /mnt/disk/moorage"),
        ("chmod 777 disk", "others than root can change /mnt/disk"),
        ("chown 1000 disk", "others than root can change /mnt/disk"),
        ("mount -o remount,ro disk", "/mnt/disk is mounted read-only"),
        (
            "mount -t ramfs ram disk; mkdir -m 700 disk/moorage",
            "/mnt/disk/moorage lies on ramfs: choose a file system of this node",
        ),
        ("mount -o remount,size=32m disk", "32 MiB are free on /mnt/disk/moorage and a job's scratch is 64M"),
        ("seq -f disk/%.0f 9900 | xargs touch", "inodes are free on /mnt/disk/moorage and a job's scratch needs 4096"),
    ],
)
def test_a_bad_place_is_named_with_its_remedy(breakage: str, words: str) -> None:
    shell(breakage)
    (found,) = findings()
    assert words in found


def test_a_loop_needs_but_one_inode() -> None:
    shell("seq -f disk/%.0f 9900 | xargs touch")
    assert findings("loop") == []


def test_a_loop_that_lacks_even_that_is_not_told_to_become_one() -> None:
    """On a disk that has no inode left."""
    shell("seq -f disk/%.0f 20000 | xargs touch 2>/dev/null || :")
    (found,) = findings("loop")
    assert found.endswith("a job's scratch needs 1: make room")


def test_a_loop_needs_a_program_to_make_file_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PATH", "/mnt")
    (found,) = findings("loop")
    assert found == "this node has no mkfs.ext4: install e2fsprogs, or set another scratch.kind"


def test_quotas_need_a_file_system_that_has_them() -> None:
    (found,) = findings("project")
    assert (
        found
        == "/mnt/disk (tmpfs) keeps no project quotas: mount ext4 or XFS with prjquota, or set scratch.kind to loop"
    )


def test_attributes_are_really_set() -> None:
    shell("mount -t ramfs ram /run")
    (found,) = findings("tmpfs")
    assert found.startswith("the file system of /run takes no user attributes (Operation not supported): mount it with")


def test_a_diskless_root_is_no_place() -> None:
    shell("mkdir -p disk/l disk/u disk/w over")
    shell("mount -t overlay -o lowerdir=disk/l,upperdir=disk/u,workdir=disk/w over over; mkdir -m 700 over/moorage")
    (found,) = findings("loop", place=Path("/mnt/over/moorage"))
    assert "lies on overlay" in found


@pytest.mark.parametrize("breakage", ["mount -o remount,size=32m disk", "seq -f disk/%.0f 9900 | xargs touch"])
def test_want_of_room_is_no_fault_of_the_nodes(breakage: str) -> None:
    shell(breakage)
    (found,) = check(Scratch(PLACE, "directory", 64 * MIB))
    assert found.fault == "room"
