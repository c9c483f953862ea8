"""The scripts of the pages for users, as they stand there: each is submitted, and does what its page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from virtual.build.cache import CACHE
from virtual.build.installation import SOURCE
from virtual.build.payload import CARRIED
from virtual.guest import builds
from virtual.guest.cluster import Cluster, running
from virtual.guest.device import GRES, described
from virtual.guest.record import Request
from virtual.jobs.batch import Job, submit
from virtual.jobs.cluster_job import START_LIMIT
from virtual.jobs.pause import PAUSE, paused

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-pages"
PORT = 23100
SCRIPTS = SOURCE / "docs/use/scripts"
USER = "alice"
# What the scripts leave to their reader, for images and devices of the lab.
GIVEN = {"ARCHIVE": f"{CARRIED}/shell.tar", "IMAGE": "localhost/lab/shell:1", "DEVICE": "/dev/lab0"}
EXPORTED = ",".join(["--export=ALL", *(f"{name}={value}" for name, value in GIVEN.items())])
# It is no batch script: a user types it on a login node.
TYPED = "look.sh"


@dataclass(frozen=True)
class Page:
    """`says` is found in the output of the script so many `times`."""

    script: str
    says: str
    times: int = 1
    options: tuple[str, ...] = ()


PAGES = (
    Page("podman.sh", r"^ *10$"),
    Page("podman-nodes.sh", r"1 packets received", times=2),
    Page("uplink.sh", r"none"),
    Page("nodes.sh", r"^\w+ +Ready "),
    Page("pod.sh", r"^42$"),
    Page("own-image.sh", r"^built in the job$"),
    Page("several-nodes.sh", r"^part [01] runs on berth[12]$", times=2),
    Page("device.sh", r"^opened$", options=(GRES, "--nodelist=n1")),
)


@pytest.fixture(scope="module")
def guests(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if directory := request.config.getoption("--lab"):
        yield running(directory)
        return
    builds.build("trixie")
    with builds.own(DIRECTORY, Request(2, "trixie", PORT)) as lab:
        yield lab


def test_every_script_has_its_turn() -> None:
    assert {page.script for page in PAGES} | {TYPED} == {path.name for path in SCRIPTS.iterdir()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.script))
def test_a_script_does_what_its_page_says(guests: Cluster, page: Page) -> None:
    with described(guests.first.shell):
        job = submitted(guests, SCRIPTS / page.script, *page.options)
        job.wait_gone(START_LIMIT)
    print(job.output)
    assert job.end == ("COMPLETED", "0:0")
    assert len(re.findall(page.says, job.output, re.MULTILINE)) >= page.times


def test_a_user_looks_into_a_running_job(guests: Cluster) -> None:
    shell = guests.first.shell
    options = ("--k8s=1", "--nodes=1", "--nodelist=n1", "--cpus-per-task=2", "--mem=4G")
    place = f"/home/{USER}/{TYPED}"
    shell.put(SCRIPTS / TYPED, place, owner=USER)
    with paused(shell, PAUSE, *options, user=USER, within=START_LIMIT) as job:
        said = shell.run(["bash", place, job.id], user=USER, limit=START_LIMIT).stdout
    assert re.search(r"^berth1 +Ready ", said, re.MULTILINE)
    assert "kube-system" in said


def submitted(guests: Cluster, script: Path, *options: str) -> Job:
    text = script.read_text().removeprefix("#!/bin/bash\n")
    return submit(guests.first.shell, text, EXPORTED, f"--chdir=/home/{USER}", *options, user=USER)
