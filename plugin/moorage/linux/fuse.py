"""Connections of FUSE mounts: they are aborted, so that processes that wait for a FUSE server can end.

Nothing here asks a server: each connection has a number, and the mounts are read from the kernel's tables.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from moorage.common.deadline import Deadline
from moorage.linux import cgroup, mounts
from moorage.linux.mounts import Mount
from moorage.linux.process import PROC, Process

# Each line of a table of mounts that may be one has this in it, and no other one needs to be understood.
MARK: Final = b" - fuse"


def abort_below(place: Path) -> None:
    _abort({mount.device for mount in _fuse(mounts.table()) if mount.point.is_relative_to(place)})


def abort_within(tree: Path, deadline: Deadline) -> None:
    """Abort the connections of mounts that tasks of this cgroup see and the node does not: those in user's namespaces.

    A process that waits for a server, and also holds the server's end of the connection, would otherwise live for ever.
    """
    _abort(_seen_within(tree, deadline) - {mount.device for mount in _fuse(mounts.table())})


def _seen_within(tree: Path, deadline: Deadline) -> set[str]:
    """Read each mount table once, line by line and until the deadline: users make tables of any length."""
    tables: set[tuple[Path, Path]] = set()
    found: set[str] = set()
    for task in cgroup.threads(tree):
        # A task that is about to end has no mounts any more: EINVAL.
        with suppress(OSError):
            process, table = Process.of(task), _table_of(task)
            if table not in tables:
                seen = set(_devices(task, deadline))
                # Otherwise the number belongs to another task by now.
                if cgroup.holds(tree, task) and process.alive:
                    tables.add(table)
                    found |= seen
        if deadline.passed:
            break
    return found


def _table_of(task: int) -> tuple[Path, Path]:
    """Names the mount table that a task sees: that of its mount namespace, below its root directory."""
    return (PROC / f"{task}/ns/mnt").readlink(), (PROC / f"{task}/root").readlink()


def _devices(task: int, deadline: Deadline) -> Iterator[str]:
    with (PROC / f"{task}/mountinfo").open("rb") as table:
        for line in table:
            if MARK in line:
                yield from (mount.device for mount in _fuse([Mount.parse(os.fsdecode(line.rstrip(b"\n")))]))
            if deadline.passed:
                return


def _fuse(table: Iterable[Mount]) -> Iterator[Mount]:
    return (mount for mount in table if mount.kind.startswith("fuse"))


def _abort(devices: set[str]) -> None:
    if not devices:
        return
    # It may not be mounted at its usual place: systemd does that at boot if the module is loaded (seen with 257).
    connections = mounts.detached("fusectl")
    try:
        for device in devices:
            major, minor = map(int, device.split(":"))
            with suppress(FileNotFoundError):
                cgroup.put(Path(f"/proc/self/fd/{connections}/{major << 20 | minor}/abort"), 1)
    finally:
        os.close(connections)
