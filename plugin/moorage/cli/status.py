"""`moorage status`: what a user's jobs have on this node, or what this job has."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from moorage.common import job, warden_protocol
from moorage.common.description import Mooring, this_job
from moorage.common.errors import MoorageError
from moorage.common.podman import Places
from moorage.common.progress import duration, size
from moorage.user.run.runner import answers

USAGE_LIMIT: Final = 5.0


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="moorage status", description="Show what your jobs have on this node.")
    parser.add_argument("--json", action="store_true", help="for programs")
    wanted = parser.parse_args(words)
    reports = list(_reports(os.environ))
    if wanted.json:
        print(json.dumps(reports))
    else:
        for report in reports:
            print(shown(report))
        if not reports:
            print("no job of yours is moored on this node")
    return 0


def shown(report: Mapping[str, object]) -> str:
    """One job in a line."""
    if "refused" in report:
        return f"job {report['job']}: refused: {report['refused']}"
    line = (
        f"job {report['job']} on {report['node']}: {report['state']}, cluster={report['cluster']}, {report['uplink']}"
    )
    match report.get("usage"):
        case {"cpu_seconds": float(seconds) | int(seconds), "processes": int(processes), **more}:
            line += f", {duration(seconds)} of CPU time, at most {processes} processes"
            if isinstance(peak := more.get("memory_peak"), int):
                line += f" and {size(peak)} of memory"
    return line


def report(number: int) -> dict[str, object]:
    places = Places(job.run_directory(number))
    try:
        mooring = Mooring.load(number)
    except MoorageError as error:
        return {"job": number, "refused": str(error)}
    found: dict[str, object] = {
        "job": number,
        "node": mooring.node,
        "state": "ready" if answers(places.socket) else "not up",
        "cluster": mooring.spec.cluster,
        "uplink": mooring.uplink,
    }
    with suppress(MoorageError):
        # Only a task of the job is answered.
        found["usage"] = warden_protocol.call(mooring.warden, warden_protocol.Usage(), USAGE_LIMIT)
    return found


def _reports(environ: Mapping[str, str]) -> Iterator[dict[str, object]]:
    if "SLURM_JOB_ID" in environ:
        yield report(this_job(environ))
        return
    for place in sorted(job.RUN.glob("[1-9]*"), key=lambda place: int(place.name)):
        with suppress(FileNotFoundError):
            if (place / "user").stat().st_uid == os.getuid():
                yield report(int(place.name))
