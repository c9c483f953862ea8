"""What is left on this node of jobs that are over: found from what root has written down, and not touched here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from moorage.common import job
from moorage.common.deadline import Deadline
from moorage.linux import mounts
from moorage.node.finding import Finding
from moorage.root.cleanup import trash
from moorage.root.cleanup.sweep import sweep

CHECK: Final = "leftovers"
LIMIT: Final = 5.0
# By then the unit that empties it should be done.
OLD: Final = 24 * 3600.0
SWEEP: Final = "moorage sweep --now"


def check(scratch: Path) -> Iterator[Finding]:
    yield from _jobs()
    yield from _mounts()
    yield from _scratch(scratch)
    yield from _trash(scratch)


def _jobs() -> Iterator[Finding]:
    """Those that nobody answers for, by the same rule as the sweep's."""
    for found in sweep(Deadline(LIMIT), act=False):
        if found.to_do:
            yield Finding(CHECK, f"job {found.job} has not been cleared up: {found.why}", SWEEP, kind="leftover")
        elif found.unknown:
            cause = f"{job.state_file(found.job)} cannot be understood"
            yield Finding(CHECK, cause, "look for what is left of that job, then remove this file")


def _mounts() -> Iterator[Finding]:
    """Without a state they will not be found by the sweep."""
    there = {mount.point for mount in mounts.table() if mount.point.parent == job.RUN and mount.point.name.isdecimal()}
    for point in sorted(there):
        if not job.state_file(int(point.name)).exists() and os.path.ismount(point):
            yield Finding(CHECK, f"{point} is mounted, and nothing is known of that job", f"umount --lazy {point}")


def _scratch(place: Path) -> Iterator[Finding]:
    """A job's state is written before its scratch is made, and goes after it."""
    if not place.is_dir():
        return
    for entry in sorted(place.iterdir()):
        number = entry.name.removesuffix(".img")
        if number.isdecimal() and not job.state_file(int(number)).exists() and os.path.lexists(entry):
            yield Finding(CHECK, f"{entry} is left of a job of which nothing is known", f"rm -rf {entry}")


def _trash(scratch: Path) -> Iterator[Finding]:
    place = scratch / trash.NAME
    entries = place.iterdir() if place.is_dir() else ()
    if old := [entry for entry in entries if time.time() - entry.lstat().st_ctime > OLD]:
        cause = f"{len(old)} ended job(s) still have files in {place}"
        remedy = f"see why: journalctl -t moorage PHASE=trash; systemctl restart {trash.UNIT}"
        yield Finding(CHECK, cause, remedy, kind="leftover")
