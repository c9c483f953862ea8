"""The mount table, and the mounts that root makes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from moorage.linux import libc

NOSUID: Final = 2
NODEV: Final = 4
_REMOUNT: Final = 32
_NOATIME: Final = 1024
_BIND: Final = 4096
_SLAVE: Final = 1 << 19
_SHARED: Final = 1 << 20
_LAZY: Final = 2
_NOFOLLOW: Final = 8

TABLE: Final = Path("/proc/self/mountinfo")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of the mount table."""

    point: Path
    device: str
    kind: str
    source: str
    options: frozenset[str]

    @classmethod
    def parse(cls, line: str) -> Self:
        # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
        fixed, _, rest = line.partition(" - ")
        _, _, device, _, point, options, *_ = fixed.split(" ")
        kind, source, super_options = rest.split(" ", 2)
        flags = frozenset(options.split(",")) | frozenset(super_options.split(","))
        return cls(Path(_unescaped(point)), device, kind, _unescaped(source), flags)


def table(text: str | None = None) -> list[Mount]:
    """All mounts of this mount namespace, or of the given table, in the order in which they were made."""
    # Users choose names of mounts, which may hold any byte. Only a newline ends a line here: for Python many characters
    # do, and in a text file also a carriage return.
    text = os.fsdecode(TABLE.read_bytes()) if text is None else text
    return [Mount.parse(line) for line in text.split("\n") if line]


def below(place: Path, mounts: list[Mount] | None = None) -> list[Path]:
    """The mount points at and below `place`, in the order in which they can be unmounted."""
    latest_first = reversed(table() if mounts is None else mounts)
    return [mount.point for mount in latest_first if mount.point.is_relative_to(place)]


def holding(place: Path, mounts: list[Mount]) -> Mount:
    """The mount that holds `place`, an absolute path without symbolic links."""
    around = (mount for mount in reversed(mounts) if place.is_relative_to(mount.point))
    # If several have the same point, the latest one covers the others, and comes first here.
    return max(around, key=lambda mount: len(mount.point.parts))


def mount(kind: str, source: str, point: Path, flags: int = 0, options: str = "") -> None:
    """mount(2): mount a file system of this kind, or do what the flags say."""
    libc.mount(source, point, kind, flags, options)


def mount_tmpfs(point: Path, *, size: int, inodes: int, uid: int, gid: int, mode: int, flags: int = 0) -> None:
    """Mount a tmpfs with its own limits."""
    options = f"size={size},nr_inodes={inodes},uid={uid},gid={gid},mode={mode:o}"
    mount("tmpfs", "moorage", point, flags, options)


def mount_image(device: Path, point: Path, options: str) -> None:
    """Mount the ext4 file system on a device."""
    mount("ext4", os.fspath(device), point, _NOATIME, options)


def bind(source: Path, point: Path) -> None:
    """Mount a directory at another point without nosuid, nodev and noexec, whatever options its own mount has.

    Later mounts below `point` do not appear below `source`.
    """
    mount("", os.fspath(source), point, _BIND)
    try:
        for change in (_REMOUNT | _BIND, _SLAVE, _SHARED):
            mount("", "", point, change)
    except OSError:
        unmount(point)
        raise


def unmount(point: Path, *, lazy: bool = False) -> None:
    libc.umount(point, _NOFOLLOW | (_LAZY if lazy else 0))


def detached(kind: str) -> int:
    """A descriptor of a file system of the kernel that is mounted nowhere."""
    context = libc.fsopen(kind)
    try:
        libc.fsconfig_create(context)
        return libc.fsmount(context)
    finally:
        os.close(context)


def _unescaped(name: str) -> str:
    """The real path: the table has octal numbers for space, tab, newline and backslash."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), name)
