"""All that a job can leave on a node, found without the code that removes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from moorage.common.deadline import Deadline
from moorage.node.config import schema
from moorage.node.config.values import MIB
from moorage.root.cleanup.end_of_job import Leftover, clean_up
from support.node import JOB

# Loop devices are the whole machine's, and tell of other runs of these tests as well.
PLACE = Path(f"/var/lib/moorage/scratch-{os.getpid()}")
SIZE = 64 * MIB
NEW_USER = 0x10000000
KINDS: tuple[schema.ScratchKind, ...] = ("loop", "tmpfs", "directory")


def cleared(limit: float = 20.0) -> list[Leftover]:
    return clean_up(JOB.id, Deadline(limit))


def traces() -> list[str]:
    """All that there could be of the job, found without the code that removes it."""
    places = [JOB.run, *Path("/var/lib/moorage/jobs").glob("*"), *PLACE.glob("*"), *PLACE.glob(".*/*")]
    seen = [str(place) for place in places if os.path.lexists(place) and place.name != ".moorage-trash"]
    table = Path("/proc/self/mountinfo").read_text()
    seen += [line for line in table.splitlines() if "/run/moorage" in line or str(PLACE) in line]
    loops = [file.read_text().strip() for file in Path("/sys/block").glob("loop*/loop/backing_file")]
    seen += [file for file in loops if str(PLACE) in file]
    return seen + [str(path) for path in Path("/sys/fs/cgroup").glob(f"moorage-test-{os.getpid()}/*/job_17")]


def await_none(find: Callable[[], list[str]], limit: float = 5.0) -> list[str]:
    """The kernel lets go of a loop device a moment after its last user."""
    end = time.monotonic() + limit
    while (found := find()) and time.monotonic() < end:
        time.sleep(0.02)
    return found
