"""A job's scratch: limited space on a mount without nosuid, nodev and noexec.

In a user namespace such flags are locked, and container runtimes there fail to remount volumes (seen with runc 1.1.15
on Linux 6.12).
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from moorage.common.command import run
from moorage.common.job import Job
from moorage.linux import loop, mounts, quota
from moorage.node.config import schema
from moorage.node.config.values import BYTES_PER_INODE, inodes
from moorage.root.cleanup import trash
from moorage.root.state import Scratch

# Nobody needs its content after a crash, so it has no journal. The inode tables of a new file are zeros already.
MAKE_FEATURES: Final = (
    "-O",
    "^has_journal,^resize_inode",
    "-m",
    "0",
    "-b",
    str(loop.BLOCK),
    "-i",
    str(BYTES_PER_INODE),
    "-E",
    "lazy_itable_init=1,nodiscard",
)
MOUNT_OPTIONS: Final = "nobarrier,noinit_itable,errors=remount-ro"
MAKE_LIMIT: Final = 120.0


def plan(job: Job, wanted: schema.Scratch) -> Scratch:
    """What `make` is going to make: it is written down before."""
    match wanted.kind:
        case "loop":
            return Scratch("loop", f"{wanted.path}/{job.id}.img")
        case "project" | "directory":
            return Scratch(wanted.kind, f"{wanted.path}/{job.id}")
        case "tmpfs":
            return Scratch("tmpfs", "")


def make(job: Job, wanted: schema.Scratch) -> Scratch:
    """Mount the job's scratch and give it to its user. On failure nothing stays."""
    planned = plan(job, wanted)
    source = Path(planned.source)
    if planned.source:
        trash.make(source.parent)
    with ExitStack() as undo:
        match planned.kind:
            case "loop":
                undo.callback(source.unlink, missing_ok=True)
                _image(source, wanted.size)
                with loop.attached(source) as device:
                    mounts.mount_image(device, job.scratch, MOUNT_OPTIONS)
                undo.callback(mounts.unmount, job.scratch)
                _hand_over(job)
            case "tmpfs":
                _tmpfs(job, wanted.size)
            case "project" | "directory":
                source.mkdir(mode=0o700)
                undo.callback(source.rmdir)
                if planned.kind == "project":
                    undo.callback(quota.remove_limits, source.parent, quota.project_of(job.id))
                    quota.bound(source, quota.project_of(job.id), wanted.size, inodes(wanted.size))
                mounts.bind(source, job.scratch)
                undo.callback(mounts.unmount, job.scratch)
                _hand_over(job)
        undo.pop_all()
    return planned


def release(what: Scratch) -> None:
    """Free the scratch after it was unmounted: its image, or the limits of its directory, which is empty by now."""
    source = Path(what.source)
    match what.kind:
        case "loop":
            source.unlink(missing_ok=True)
        case "project":
            with suppress(FileNotFoundError):
                quota.remove_limits(source.parent, quota.project_of(int(source.name)))


def _image(image: Path, size: int) -> None:
    """Make a file system in a file. Its space is reserved now, so that other jobs cannot use it up later."""
    descriptor = os.open(image, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _reserve(descriptor, size)
    finally:
        os.close(descriptor)
    run(["mkfs.ext4", "-q", "-F", *MAKE_FEATURES, image], limit=MAKE_LIMIT)


def _reserve(descriptor: int, size: int) -> None:
    os.ftruncate(descriptor, size)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise


def _tmpfs(job: Job, size: int) -> None:
    mounts.mount_tmpfs(job.scratch, size=size, inodes=inodes(size), uid=job.uid, gid=job.gid, mode=0o700)


def _hand_over(job: Job) -> None:
    """Give the top of the mounted scratch to the user, last of all: before that the user can write nothing in it."""
    with suppress(FileNotFoundError):
        (job.scratch / "lost+found").rmdir()
    job.scratch.chmod(0o700)
    os.chown(job.scratch, job.uid, job.gid, follow_symlinks=False)
