"""A job's run directory: root's, with one part that is the user's. A refused job has only the refusal in it."""

from __future__ import annotations

import os
import stat
import struct
import sys
from pathlib import Path
from typing import Final

from moorage.common import files, job
from moorage.common.errors import MoorageError
from moorage.common.podman import RELEASE
from moorage.linux import mounts
from moorage.node.config import schema

ROOTS: Final = 0o700
# An access control list as the kernel takes it: a version, then tag, permissions and id of each entry.
ACL: Final = "system.posix_acl_access"
_VERSION: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<HHI")
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NO_ID: Final = (1 << 32) - 1


def make(of: job.Job, limits: schema.Run) -> None:
    """Make it, as a tmpfs of its own: a user can fill only this one. The end of the job removes it."""
    _directory(of.run, ROOTS)
    mounts.mount_tmpfs(
        of.run, size=limits.size, inodes=limits.inodes, uid=0, gid=0, mode=ROOTS, flags=mounts.NOSUID | mounts.NODEV
    )
    let_through(of.run, of.uid)
    for name in ("etc", "bin", "helpers"):
        _directory(of.run / name, 0o755)
    _keep_release(of)
    (of.run / "bin" / "moorage").symlink_to(f"../{RELEASE}/bin/moorage")
    for place in (of.user_run, of.scratch):
        _directory(place, 0o700)
    os.chown(of.user_run, of.uid, of.gid, follow_symlinks=False)


def refuse(of: job.Job, line: str) -> None:
    """Leave the refusal. The job fails with this line."""
    if not of.run.is_dir():
        _directory(of.run, ROOTS)
        let_through(of.run, of.uid)
        # With it the job's first node can start an agent here, which tells the refusal.
        _keep_release(of)
    files.replace(of.refusal, printable(line) + "\n", 0o644)


def prepare() -> None:
    """Make the directory of all run directories; a MoorageError if others than root can write it."""
    job.RUN.mkdir(mode=0o755, exist_ok=True)
    status = job.RUN.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise MoorageError(f"{job.RUN} is not a directory that only root can write: remove it", code="M-NODE-8")
    if stat.S_IMODE(status.st_mode) != 0o755:
        job.RUN.chmod(0o755)


def printable(text: str) -> str:
    """One line that a terminal shows as it is."""
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))


def let_through(place: Path, uid: int) -> None:
    """Let only root and this user enter. No mode can say that: the user's group may be everybody's."""
    entries = [(_OWNER, 7, _NO_ID), (_USER, 1, uid), (_GROUP, 0, _NO_ID), (_MASK, 1, _NO_ID), (_OTHERS, 0, _NO_ID)]
    os.setxattr(place, ACL, _VERSION.pack(2) + b"".join(_ENTRY.pack(*entry) for entry in entries))


def _keep_release(of: job.Job) -> None:
    """Link the release of this Prolog: the job uses it to its end, also after an upgrade."""
    (of.run / RELEASE).symlink_to(sys.prefix)


def _directory(path: Path, mode: int) -> None:
    path.mkdir(mode=0o700)
    # Whatever the umask was.
    path.chmod(mode)
