"""A job with a cluster of its own, and the phases of its start by its output."""

from __future__ import annotations

import re
from pathlib import Path

from ..guest.shell import Shell
from .batch import Job, submit

MOORED = "--k8s=1"
OPTIONS = ("--nodes=1", "--nodelist=n1", "--cpus-per-task=2", "--mem=4G")
# Under emulation a start takes minutes, and so does what is then done in the cluster.
START_LIMIT = 2400.0
MANIFESTS = Path(__file__).resolve().parents[2] / "cluster/manifests"
PLACE = "/home/{user}/manifests"
STARTS = "starting kind"
_PHASE = re.compile(r"moorage: +([0-9]+\.[0-9]) s  (.+)")
_READY = re.compile(r"moorage: ready after (?:(\d+):(\d\d):(\d\d)|(\d+):(\d\d)|([0-9.]+) s)")


def cluster_job(shell: Shell, script: str, *options: str, user: str = "alice") -> Job:
    """Submit a script; it finds the manifests of the tests in its working directory."""
    place = put_manifests(shell, MANIFESTS, user)
    return submit(shell, script, MOORED, *OPTIONS, f"--chdir={place}", *options, user=user)


def put_manifests(shell: Shell, manifests: Path, user: str) -> str:
    """Where the user finds them."""
    place = PLACE.format(user=user)
    for manifest in sorted(manifests.iterdir()):
        shell.put(manifest, f"{place}/{manifest.name}", owner=user)
    return place


def phases(output: str) -> list[tuple[float, str]]:
    """Each phase of the start and the second at which it began, without details of a phase."""
    found: list[tuple[float, str]] = []
    for line in output.splitlines():
        match = _PHASE.fullmatch(line)
        if match and not (found and match[2].startswith(f"{found[-1][1]}: ")):
            found.append((float(match[1]), match[2]))
    return found


def ready(output: str) -> float:
    """The duration of the start in seconds, by the job's own line; whole seconds from a minute on."""
    match = _READY.search(output)
    assert match, output
    *clock, seconds = match.groups()
    hours, minutes, rest, more_minutes, more_rest = (int(part or 0) for part in clock)
    return hours * 3600 + (minutes + more_minutes) * 60 + rest + more_rest + float(seconds or 0)


def in_kind(output: str) -> float:
    """The time from the start of kind until the cluster was ready, in seconds."""
    return ready(output) - next(moment for moment, text in phases(output) if text == STARTS)


def table(output: str) -> list[str]:
    """The phases with their durations, for people to read."""
    begun = phases(output)
    ends = [moment for moment, _ in begun[1:]] + [ready(output)]
    return [f"  {moment:7.1f}  {end - moment:7.1f}  {text}" for (moment, text), end in zip(begun, ends, strict=True)]
