"""Project quotas: limits for the content of one directory, on ext4 and XFS alike."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from moorage.linux import libc

# Sites number their projects from 1. The numbers of jobs begin here.
FIRST: Final = 1 << 30

_GET_ATTRIBUTES: Final = 0x801C581F
_SET_ATTRIBUTES: Final = 0x401C5820
_ATTRIBUTES: Final = struct.Struct("=IIIII8x")
_INHERIT: Final = 0x200
_GET_QUOTA: Final = 0x800007
_SET_QUOTA: Final = 0x800008
_PROJECT: Final = 2
_QUOTA: Final = struct.Struct("=8QI4x")
_LIMITS: Final = 1 | 4


def project_of(job: int) -> int:
    """The project of a job. In a federation, numbers of jobs have more than 26 bits, and are used unchanged."""
    return job if job >> 26 else FIRST + job


def bound(directory: Path, project: int, size: int, inodes: int) -> None:
    """Make `directory`, with all that will lie in it, a project with these limits."""
    with _opened(directory) as descriptor:
        _limit(descriptor, project, size, inodes)
        flags, extent, extents, _, cow = _attributes(descriptor)
        fcntl.ioctl(descriptor, _SET_ATTRIBUTES, _ATTRIBUTES.pack(flags | _INHERIT, extent, extents, project, cow))


def open_to_all(directory: int) -> None:
    """Allow files of other projects to be moved into this directory.

    The kernel refuses that with EXDEV, as between file systems, if files in the directory inherit its project.
    """
    try:
        flags, *others = _attributes(directory)
    except OSError:
        # This file system has no projects.
        return
    if flags & _INHERIT:
        fcntl.ioctl(directory, _SET_ATTRIBUTES, _ATTRIBUTES.pack(flags & ~_INHERIT, *others))


def remove_limits(place: Path, project: int) -> None:
    """Remove the limits of a project on the file system of `place`."""
    with _opened(place) as descriptor:
        _limit(descriptor, project, 0, 0)


def limits(place: Path, project: int) -> tuple[int, int]:
    """The limits of a project on the file system of `place`, in bytes and inodes; 0 is no limit."""
    quota = bytearray(_QUOTA.size)
    with _opened(place) as descriptor:
        try:
            _call(descriptor, _GET_QUOTA, project, quota)
        except FileNotFoundError:
            # XFS answers so for an unknown project; ext4 answers zeros.
            return 0, 0
    blocks, _, _, inodes, *_ = _QUOTA.unpack(quota)
    return blocks << 10, inodes


def enforced(place: Path) -> bool:
    """Whether the file system of `place` supports project quotas."""
    try:
        limits(place, FIRST)
    except OSError:
        return False
    return True


def _attributes(descriptor: int) -> tuple[int, ...]:
    return _ATTRIBUTES.unpack(fcntl.ioctl(descriptor, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size)))


def _limit(descriptor: int, project: int, size: int, inodes: int) -> None:
    limits = _QUOTA.pack(size >> 10, 0, 0, inodes, 0, 0, 0, 0, _LIMITS)
    _call(descriptor, _SET_QUOTA, project, bytearray(limits))


def _call(descriptor: int, command: int, project: int, quota: bytearray) -> None:
    libc.quotactl(descriptor, command << 8 | _PROJECT, project, quota)


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
