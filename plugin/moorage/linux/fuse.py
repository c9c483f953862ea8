"""Connections of FUSE mounts, which are ended so that whoever waits for one of their servers can die.

Nothing here asks a server anything: a connection has a number, and what is mounted is read from the kernel's tables.
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
    """Those in namespaces of the user's: mounts that tasks of his tree see, and the node does not.

    Who waits for a server and holds its end as well would keep it alive for good.
    """
    _abort(_seen_within(tree, deadline) - {mount.device for mount in _fuse(mounts.table())})


def _seen_within(tree: Path, deadline: Deadline) -> set[str]:
    """Users make tables of any length: each is read once, a line at a time, and no longer than there is time."""
    tables: set[tuple[Path, Path]] = set()
    found: set[str] = set()
    for task in cgroup.threads(tree):
        # One that has nearly ended has no mounts any more: EINVAL.
        with suppress(OSError):
            process, table = Process.of(task), _table_of(task)
            if table not in tables:
                seen = set(_devices(task, deadline))
                # Else the number is another one's by now.
                if cgroup.holds(tree, task) and process.alive:
                    tables.add(table)
                    found |= seen
        if deadline.passed:
            break
    return found


def _table_of(task: int) -> tuple[Path, Path]:
    """Which table it sees: all that its namespace has below its root."""
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
    # Its usual place may be empty: systemd mounts it there at boot, if the module is loaded by then (seen with 257).
    connections = mounts.detached("fusectl")
    try:
        for device in devices:
            major, minor = map(int, device.split(":"))
            with suppress(FileNotFoundError):
                cgroup.put(Path(f"/proc/self/fd/{connections}/{major << 20 | minor}/abort"), 1)
    finally:
        os.close(connections)
