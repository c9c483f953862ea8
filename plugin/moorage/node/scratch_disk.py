"""Checks of the disk for jobs' scratch: root's own, local, fit for containers, not full."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from moorage.linux import mounts, quota
from moorage.node import programs
from moorage.node.config.schema import Scratch
from moorage.node.config.values import inodes, shown_size
from moorage.node.finding import Finding

# Other file systems are on the network, or nobody has tried them.
LOCAL: Final = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs", "zfs"})
WITH_PROJECTS: Final = frozenset({"ext4", "xfs"})
PROBE: Final = "user.moorage.probe"
# One state is some KiB.
LEAST_ROOM: Final = 1 << 20


def check(wanted: Scratch) -> Iterator[Finding]:
    if wanted.kind == "tmpfs":
        # The run directory lies on one, too.
        yield from _attributes(Path("/run"))
        return
    problem = next(_place(wanted.path), None) or next(_kind(wanted), None)
    if problem:
        yield problem
        return
    if wanted.kind != "loop":
        yield from _attributes(wanted.path)
    yield from _room(wanted, os.statvfs(wanted.path))


def memory(place: Path) -> Iterator[Finding]:
    """The directory of the jobs' states, which the first job makes."""
    if place.exists():
        yield from _place(place.resolve(), "state", "the jobs' states")
    there = next(parent for parent in (place, *place.parents) if parent.exists())
    space = os.statvfs(there)
    if space.f_bavail * space.f_frsize < LEAST_ROOM or (space.f_files and not space.f_favail):
        yield Finding(
            "state",
            f"the disk of {place} is full",
            "make room: until then no job with --k8s starts",
            kind="room",
            code="M-STATE-1",
        )


def _place(path: Path, check: str = "scratch", what: str = "scratch.path") -> Iterator[Finding]:
    """Nobody but root may reach the directory, or somebody could put another one in its place."""
    for part in (*reversed(path.parents), path):
        try:
            status = part.lstat()
        except OSError:
            remedy = f"install -d -m 700 {path}; a site's hook that mounts it must come later in the alphabet than ours"
            yield Finding(check, f"{what}: there is no {part}", remedy, code="M-SCRATCH-1")
            return
        if not stat.S_ISDIR(status.st_mode):
            yield Finding(
                check, f"{what}: {part} is not a directory", "name the place without symbolic links", code="M-SCRATCH-2"
            )
            return
        if status.st_uid != 0 or (status.st_mode & 0o022 and not (status.st_mode & stat.S_ISVTX and part != path)):
            remedy = f"chown root {part}; chmod go-w {part}"
            yield Finding(check, f"{what}: others than root can change {part}", remedy, code="M-SCRATCH-3")
            return
    if stat.S_IMODE(path.lstat().st_mode) & 0o077:
        yield Finding(check, f"{what}: others than root can enter {path}", f"chmod 700 {path}", code="M-SCRATCH-4")


def _kind(wanted: Scratch) -> Iterator[Finding]:
    lies_on = mounts.holding(wanted.path, mounts.table())
    if lies_on.kind not in LOCAL:
        what = f"scratch.path: {wanted.path} lies on {lies_on.kind}"
        yield Finding(
            "scratch", what, f"choose a file system of this node ({', '.join(sorted(LOCAL))})", code="M-SCRATCH-5"
        )
    elif "ro" in lies_on.options:
        yield Finding(
            "scratch", f"scratch.path: {lies_on.point} is mounted read-only", "mount it for writing", code="M-SCRATCH-6"
        )
    elif wanted.kind == "project" and not (lies_on.kind in WITH_PROJECTS and quota.enforced(wanted.path)):
        what = f"{lies_on.point} ({lies_on.kind}) keeps no project quotas"
        yield Finding(
            "scratch", what, "mount ext4 or XFS with prjquota, or set scratch.kind to loop", code="M-SCRATCH-7"
        )
    elif wanted.kind == "loop" and not Path("/dev/loop-control").exists():
        yield Finding(
            "scratch", "this node has no loop devices", "modprobe loop, or set another scratch.kind", code="M-SCRATCH-8"
        )
    elif wanted.kind == "loop" and not programs.find("mkfs.ext4"):
        yield Finding(
            "scratch",
            "this node has no mkfs.ext4",
            "install e2fsprogs, or set another scratch.kind",
            code="M-SCRATCH-9",
        )


def _attributes(place: Path) -> Iterator[Finding]:
    """Podman keeps data of an overlay in user attributes: set one to see that it works."""
    try:
        os.setxattr(place, PROBE, b"1")
        os.removexattr(place, PROBE)
    except OSError as error:
        what = f"the file system of {place} takes no user attributes ({error.strerror})"
        yield Finding("scratch", what, "mount it with user_xattr, or set scratch.kind to loop", code="M-SCRATCH-10")


def _room(wanted: Scratch, there: os.statvfs_result) -> Iterator[Finding]:
    free = there.f_bavail * there.f_frsize
    if free < wanted.size:
        what = f"{free >> 20} MiB are free on {wanted.path} and a job's scratch is {shown_size(wanted.size)}"
        yield Finding("scratch", what, "make room, or make scratch.size smaller", kind="room", code="M-SCRATCH-11")
    loop = wanted.kind == "loop"
    needed = 1 if loop else inodes(wanted.size)
    # btrfs counts none.
    if there.f_files and there.f_favail < needed:
        what = f"{there.f_favail} inodes are free on {wanted.path} and a job's scratch needs {needed}"
        yield Finding(
            "scratch",
            what,
            "make room" if loop else "make room, or set scratch.kind to loop",
            kind="room",
            code="M-SCRATCH-12",
        )
