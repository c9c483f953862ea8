"""What a user leaves in the way of his job's end on purpose: the Epilog ends in time, and the node goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.figures import Figures
from virtual.guest.acceleration import EMULATION
from virtual.guest.broken_node import configured
from virtual.guest.cluster import Cluster
from virtual.guest.shell import Shell
from virtual.jobs.batch import MOORED, Job, submit
from virtual.jobs.pause import PAUSE, paused
from virtual.probes.leftovers import Watch

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).resolve().parents[1] / "virtual/in_guest/hostile_job.py"
HERE = ("--nodelist=n1", "--cpus-per-task=1", "--mem=500M")
SCRATCH = "/var/lib/moorage/scratch"
# The scratch's size, how many files are tried, and how many of them there must be. A scratch of 16 GB has some more
# than a million inodes, and all of them are taken; once is enough.
CROWDS = {"trixie": ("16G", 1 << 20, 1_000_000), "unstable": ("3G", 10_000, 10_000)}
# Under emulation each takes a fraction of a millisecond, and memory of the job's until it is on the disk.
FILLED = 900.0
# Whoever holds the last descriptor gives all that memory back when he ends.
GIVEN_BACK = 180.0
ROOMY = (*HERE, "--mem=1G")
# More than an Epilog has time for: its usual time where guests are emulated, and less where they are not.
MORE = 100_000
EPILOG_LIMIT = {EMULATION: 60}
SHORT = 5
# From the last line of a script to the end of its job: epilog_limit, and what Slurm takes itself.
IN_TIME = 75.0
TRASH = 600.0

HARM = r"""
run=/run/moorage/$SLURM_JOB_ID
harm() { python3 ~/hostile.py "$@"; }
export -f harm
"""
PLANTED = rf"""
{HARM}
mkdir $run/user/his $run/user/others $run/scratch/his
podman unshare python3 ~/hostile.py hang $run/user/his &
unshare --user --map-root-user --mount python3 ~/hostile.py hang $run/scratch/his &
until grep -q "waiting for $run/user/his" ~/job-$SLURM_JOB_ID.out; do sleep 0.3; done
harm deep $run/scratch 1100
harm many $run/scratch FILES
rm -r $run/scratch/many-0
{PAUSE}
podman unshare python3 ~/hostile.py wait $run/user/others &
until grep -q "waiting for $run/user/others" ~/job-$SLURM_JOB_ID.out; do sleep 0.3; done
date +ends:%s.%N
"""
OTHER = r"""
run=/run/moorage/JOB
python3 ~/hostile.py serve $run/user/others &
exec python3 ~/hostile.py hold $run/scratch/deeper $run/scratch $run/user $run/etc/containers.conf
"""
LOCKED = rf"""
{HARM}
mkdir $run/user/his
podman unshare python3 ~/hostile.py lock $run/user/his &
until grep -q "waiting for $run/user/his" ~/job-$SLURM_JOB_ID.out; do sleep 0.3; done
date +ends:%s.%N
"""
NUMEROUS = rf"""
{HARM}
harm deep $run/scratch 1100
harm many $run/scratch {MORE}
date +ends:%s.%N
"""


@pytest.fixture(autouse=True)
def shell(lab: Cluster) -> Shell:
    lab.wait_idle()
    lab.first.shell.put(PROGRAM, "/home/alice/hostile.py", owner="alice")
    return lab.first.shell


def test_all_at_once(lab: Cluster, shell: Shell, figures: Figures) -> None:
    """Hanging mounts in his own namespaces and in the node's, a deep tree, no inode free, descriptors elsewhere."""
    suite = lab.request.suite
    size, tried, least = CROWDS[suite]
    with configured(shell, f"scratch: {{size: {size}}}"), Watch(lab, lab.first).nothing_left():
        with other_job(shell) as others:
            with paused(shell, PLANTED.replace("FILES", str(tried)), MOORED, *ROOMY, within=FILLED) as job:
                others.append(holding(shell, job))
            seconds = after_the_end(job)
            figures.add(f"inodes that a user has filled, {suite}", many(job), "", at_least=least)
            figures.add(f"end of a hostile job, Epilog included, {suite}", seconds, "s", at_most=IN_TIME)
            assert of_roots(shell) == []
            assert lab.node_states()[0] == "mixed"
        lab.wait_idle(limit=GIVEN_BACK)


def test_a_mount_that_is_kept_alive_by_who_waits_for_it(lab: Cluster, shell: Shell, figures: Figures) -> None:
    """In namespaces of the user's, where the Epilog does not see it; no signal ends that process."""
    with Watch(lab, lab.first).nothing_left():
        job = submit(shell, LOCKED, MOORED, *HERE)
        job.wait_gone()
        seconds = after_the_end(job)
        figures.add(f"end of a job with a locked mount, {lab.request.suite}", seconds, "s", at_most=IN_TIME)
        assert of_roots(shell) == []


def test_more_files_than_there_is_time_for(lab: Cluster, shell: Shell, figures: Figures) -> None:
    """They are in the trash when the Epilog ends, and go on being removed."""
    directory = f"scratch: {{kind: directory, size: 64M, path: {SCRATCH}}}"
    limit = f"epilog_limit: {EPILOG_LIMIT.get(lab.hardware.acceleration.name, SHORT)}"
    with configured(shell, directory, limit), Watch(lab, lab.first).nothing_left():
        job = submit(shell, NUMEROUS, MOORED, *HERE)
        job.wait_gone()
        seconds, began = after_the_end(job), time.monotonic()
        figures.add(f"end of a job with {many(job)} files, {lab.request.suite}", seconds, "s", at_most=IN_TIME)
        lab.wait_idle(limit=60)
        assert of_roots(shell) == []
        assert len(shell.output("ls", "--almost-all", f"{SCRATCH}/.moorage-trash").splitlines()) == 1
        wait = f'until [ -z "$(ls -A {SCRATCH}/.moorage-trash)" ]; do sleep 0.5; done'
        shell.run(["timeout", f"{TRASH:.0f}", "sh", "-c", wait])
        figures.add(f"its trash empty, {lab.request.suite}", time.monotonic() - began, "s", at_most=TRASH)


@contextmanager
def other_job(shell: Shell) -> Iterator[list[Job]]:
    """A place for jobs that end with the block."""
    jobs: list[Job] = []
    try:
        yield jobs
    finally:
        for job in jobs:
            job.cancel("--quiet")
            job.wait_gone()


def holding(shell: Shell, job: Job) -> Job:
    """A job of the same user that holds what is the first one's, and serves a mount in there."""
    other = submit(shell, OTHER.replace("JOB", job.id), "--nodelist=n1", "--mem=100M")
    for said in (f"serving /run/moorage/{job.id}", f"holding /run/moorage/{job.id}"):
        other.wait_said(said)
    return other


def after_the_end(job: Job) -> float:
    """From its script's last line until now."""
    now = float(job.shell.output("date", "+%s.%N"))
    return now - float(said(job, "ends:"))


def many(job: Job) -> int:
    return int(said(job, "many "))


def said(job: Job, word: str) -> str:
    return next(line.removeprefix(word) for line in job.output.splitlines() if line.startswith(word))


def of_roots(shell: Shell) -> list[str]:
    """What is left of what root has made for jobs: mounts, directories, states, scratch that is not in the trash."""
    mounts = shell.output("findmnt", "--noheadings", "--list", "--output=TARGET").splitlines()
    places = ("/run/moorage", "/var/lib/moorage/jobs", SCRATCH)
    files = shell.output("find", *places, "-mindepth", "1", "-maxdepth", "1").splitlines()
    return [point for point in mounts if point.startswith("/run/moorage")] + [
        file for file in files if not file.endswith(("/facts.json", "/.moorage-trash"))
    ]
