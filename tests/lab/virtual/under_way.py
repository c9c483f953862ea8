"""Jobs whose cluster runs when something happens to them, in guests of a test's own, of which one is watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import builds
from .jobs import Job
from .leftovers import Watch, make_ready
from .lingering import lingering
from .moored import START_LIMIT, moored
from .record import Request

SAYS = "under way"
RUNS = f"kubectl get nodes; sleep 3600 & echo {SAYS};"


@contextmanager
def watched(directory: Path, suite: str, port: int, *, only_qemu: str = "") -> Iterator[Watch]:
    """A guest on which alice is logged in elsewhere, too, and has been before."""
    builds.build(suite)
    request = Request(1, suite, port, only_qemu=only_qemu)
    with builds.own(directory, request) as lab, lingering(lab.first.shell, "alice"):
        make_ready(lab.first)
        yield Watch(lab, lab.first)


def under_way(watch: Watch, script: str, *options: str) -> Job:
    job = moored(watch.machine.shell, script, *options)
    job.wait_said(f"^{SAYS}", START_LIMIT)
    assert " Ready " in job.output
    return job
