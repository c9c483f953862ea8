"""`moorage status`: what this job has on this node, or what each of a user's jobs has there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from moorage.cli.manual import Manual, Parser
from moorage.cli.output import as_json
from moorage.common import job, warden_protocol
from moorage.common.description import Mooring, this_job
from moorage.common.errors import MoorageError
from moorage.common.podman import Places
from moorage.common.progress import duration, size
from moorage.user.run.runner import answers

USAGE_LIMIT: Final = 5.0
ABOUT: Final = """\
Show what your jobs have on this node: state, cluster, uplink and, inside a job, what that job has used.

It shows this node only. Other nodes of the same job are not asked."""
WHERE: Final = "On a compute node: in a job, it shows that job; elsewhere, all your jobs on the node."
EXAMPLES: Final = (
    ("moorage status", "one line for each job"),
    ("srun --jobid=JOBID --overlap --ntasks-per-node=1 moorage status", "one line from each node of a job"),
)


def main(words: Sequence[str]) -> None:
    wanted = parser().read(words)
    reports = list(_reports(os.environ))
    if wanted.json:
        print(as_json(jobs=reports))
    else:
        for report in reports:
            print(shown(report))
        if not reports:
            print("you have no job with --k8s on this node")


def parser() -> Parser:
    made = Parser(prog="moorage status", manual=Manual(ABOUT, WHERE, EXAMPLES))
    made.add_argument("--json", action="store_true", help="print {schema, jobs: [{job, node, state, ...}]}")
    return made


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
        return {"job": number, "refused": error.line}
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
