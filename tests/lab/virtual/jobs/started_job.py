"""Jobs whose cluster already runs, for tests that then disturb them, in guests of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..guest import builds
from ..guest.record import Request
from ..guest.user_session import user_session
from ..probes.leftovers import Watch, make_ready
from .batch import Job
from .cluster_job import START_LIMIT, cluster_job

SAYS = "under way"
RUNS = f"kubectl get nodes; sleep 3600 & echo {SAYS};"


@contextmanager
def watched(directory: Path, suite: str, port: int, *, only_qemu: str = "") -> Iterator[Watch]:
    """A guest on which alice has a session outside of any job, too."""
    builds.build(suite)
    request = Request(1, suite, port, only_qemu=only_qemu)
    with builds.own(directory, request) as lab, user_session(lab.first.shell, "alice"):
        make_ready(lab.first)
        yield Watch(lab, lab.first)


def started_job(watch: Watch, script: str, *options: str) -> Job:
    job = cluster_job(watch.machine.shell, script, *options)
    job.wait_said(f"^{SAYS}", START_LIMIT)
    assert " Ready " in job.output
    return job
