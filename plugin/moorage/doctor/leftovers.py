"""What jobs that are over have left on this node: found by root's own notes, and not touched here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from moorage.common import job
from moorage.common.deadline import Deadline
from moorage.linux import cgroup, mounts
from moorage.linux.process import name
from moorage.node.finding import Finding
from moorage.root import state
from moorage.root.cleanup import trash
from moorage.root.cleanup.sweep import sweep

CHECK: Final = "leftovers"
LIMIT: Final = 5.0
MOST_NAMED: Final = 3
# The unit that empties the trash takes less time.
OLD: Final = 24 * 3600.0
SWEEP: Final = "moorage sweep --now"


def check(scratch: Path) -> Iterator[Finding]:
    yield from _jobs()
    yield from _mounts()
    yield from _scratch(scratch)
    yield from _trash(scratch)


def _jobs() -> Iterator[Finding]:
    """Jobs that the sweep would remove, and states that it does not understand."""
    # All of it first: while the sweep looks at a job, it holds the job's lock.
    for found in [*sweep(Deadline(LIMIT), act=False)]:
        if found.to_do:
            known = state.load(found.job)
            there = processes(known.tree) if known and known.tree else ()
            cause = f"job {found.job} has not been cleaned up: {'; '.join([found.why, *there])}"
            yield Finding(CHECK, cause, SWEEP, kind="leftover", code="M-LEFT-3")
        elif found.unknown:
            cause = f"{job.state_file(found.job)} cannot be understood"
            yield Finding(CHECK, cause, "look for what is left of that job, then remove this file", code="M-LEFT-4")


def processes(tree: Path) -> Iterator[str]:
    """The processes that are still in this delegated cgroup: one in `disk-sleep` cannot be killed yet."""
    pids = cgroup.processes(tree)
    if not pids:
        return
    # Only here: a health check comes again and again, and mostly finds nothing.
    import psutil

    for pid in pids[:MOST_NAMED]:
        # The name is the user's word: psutil would take it from the arguments, of any length and with any bytes.
        with suppress(psutil.NoSuchProcess):
            yield f"process {pid} ({name(pid)}) is {psutil.Process(pid).status()}"
    if more := pids[MOST_NAMED:]:
        yield f"and {len(more)} more"


def _mounts() -> Iterator[Finding]:
    """Mounts of jobs that have no state, by which the sweep would find them."""
    there = {mount.point for mount in mounts.table() if mount.point.parent == job.RUN and mount.point.name.isdecimal()}
    for point in sorted(there):
        if not job.state_file(int(point.name)).exists() and os.path.ismount(point):
            yield Finding(
                CHECK, f"{point} is mounted, and that job has no state here", f"umount --lazy {point}", code="M-LEFT-5"
            )


def _scratch(place: Path) -> Iterator[Finding]:
    """Scratch of jobs that have no state. A state is written before the scratch is made, and is removed after it."""
    if not place.is_dir():
        return
    for entry in sorted(place.iterdir()):
        number = entry.name.removesuffix(".img")
        if number.isdecimal() and not job.state_file(int(number)).exists() and os.path.lexists(entry):
            yield Finding(CHECK, f"{entry} is left of a job that has no state here", f"rm -rf {entry}", code="M-LEFT-6")


def _trash(scratch: Path) -> Iterator[Finding]:
    place = scratch / trash.NAME
    entries = place.iterdir() if place.is_dir() else ()
    if old := [entry for entry in entries if time.time() - entry.lstat().st_ctime > OLD]:
        cause = f"{len(old)} ended job(s) still have files in {place}"
        remedy = f"see why: journalctl -t moorage PHASE=trash; systemctl restart {trash.UNIT}"
        yield Finding(CHECK, cause, remedy, kind="leftover", code="M-LEFT-7")
