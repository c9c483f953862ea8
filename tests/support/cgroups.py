"""Slurm's cgroups of a job, made by hand on the real kernel."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from moorage.common.command import run

ROOT = Path("/sys/fs/cgroup")


@contextmanager
def slurm_scope() -> Iterator[Path]:
    """A scope as slurmd has one, with what this machine's root cgroup hands down; nothing of it stays.

    To be called in a mount namespace of the test's own: the unified hierarchy appears in its usual place there.
    """
    run(["mount", "-t", "cgroup2", "none", ROOT])
    top = ROOT / f"moorage-test-{os.getpid()}"
    scope = top / "node1_slurmstepd.scope"
    scope.mkdir(parents=True)
    for directory in (ROOT, top):
        for controller in (directory / "cgroup.controllers").read_text().split():
            with suppress(OSError):
                (directory / "cgroup.subtree_control").write_text(f"+{controller}")
    try:
        yield scope
    finally:
        (top / "cgroup.kill").write_text("1")
        await_event(top, "populated 0")
        for below, _, _ in os.walk(top, topdown=False):
            Path(below).rmdir()


def leaf(scope: Path, job: str, step: str, task: str) -> Path:
    """Make <scope>/<job>/<step>/user/<task>, and slurmstepd's place beside it."""
    made = scope / job / step / "user" / task
    made.mkdir(parents=True, exist_ok=True)
    (scope / job / step / "slurm").mkdir(exist_ok=True)
    return made


def await_event(directory: Path, event: str, limit: float = 10.0) -> None:
    with (directory / "cgroup.events").open("rb", buffering=0) as events:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while event.encode() not in os.pread(events.fileno(), 4096, 0).splitlines():
            assert poll.poll(limit * 1000), f"{directory} never became {event}"


def members(directory: Path) -> list[int]:
    return [int(pid) for pid in (directory / "cgroup.procs").read_text().split()]
