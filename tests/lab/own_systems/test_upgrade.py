"""An upgrade while a job runs: the job keeps its release and ends clean, the next one has the new release."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage import __version__
from virtual.build import history
from virtual.build.cache import CACHE
from virtual.guest import builds
from virtual.guest.cluster import Cluster
from virtual.guest.record import Request
from virtual.guest.shell import Shell
from virtual.guest.site import Site
from virtual.jobs.batch import MOORED, Job, run
from virtual.jobs.container_job import RUN, Roles, container_job, tell

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-upgrade"
PORT = 23000
OLD = "0.0.1"
NEW = "99.0"
VERSIONS = "/opt/moorage/versions"
SCRIPT = f"""
echo "before: $(moorage --version)"
told upgraded
echo "after: $(moorage --version)"
{RUN} echo a container still starts
moorage status
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Cluster]:
    builds.build("trixie")
    with builds.own(DIRECTORY, Request(1, "trixie", PORT)) as lab:
        yield lab


def test_a_running_job_keeps_its_release(lab: Cluster) -> None:
    shell = lab.first.shell
    site = Site(lab.directory / "site", lab.first)
    site.directory.mkdir()
    job = container_job(shell, SCRIPT, "--time=120")
    job.wait_said("before:")
    (old,) = shell.output("ls", VERSIONS).split()
    try:
        assert site.install(NEW) > 0
        assert shell.output("moorage", "--version").endswith(f" {NEW}")
        assert set(shell.output("ls", VERSIONS).split()) > {old}
        # Killed, it comes back as what it was, for it talks with processes of that release.
        Roles(job).kill("warden")
        assert shell.output("readlink", f"/run/moorage/{job.id}/release") == f"{VERSIONS}/{old}"
        tell(job, "upgraded")
        job.wait_gone()
    finally:
        job.cancel("--quiet")
    ended_clean(shell, job, __version__)

    assert f"moorage {NEW}\n" in run(shell, "moorage --version", MOORED, "--cpus-per-task=1", "--mem=512M").output
    site.install(NEW)
    (new,) = shell.output("ls", VERSIONS).split()
    assert new.startswith(f"{NEW}-")
    lab.first.examine()
    lab.wait_idle()


@pytest.mark.skipif(not history.has(history.BEFORE_THE_MOVE), reason="this checkout has no history before the move")
def test_a_job_of_the_release_before_the_move_ends_clean(lab: Cluster) -> None:
    """New hooks and units start the names of modules that the old release knows."""
    shell = lab.first.shell
    source = history.unpacked(history.BEFORE_THE_MOVE, lab.directory / "before-the-move")
    (lab.directory / "old").mkdir()
    Site(lab.directory / "old", lab.first, source=source).install(OLD)
    job = container_job(shell, SCRIPT, "--time=120")
    job.wait_said("before:")
    try:
        Site(lab.directory / "site", lab.first).install(NEW)
        assert shell.output("moorage", "--version").endswith(f" {NEW}")
        # Its unit is the new one, and starts the warden of the job's own release.
        Roles(job).kill("warden")
        tell(job, "upgraded")
        job.wait_gone()
    finally:
        job.cancel("--quiet")
    ended_clean(shell, job, OLD)
    lab.first.examine()
    lab.wait_idle()


def ended_clean(shell: Shell, job: Job, release: str) -> None:
    """The job had this release from its start to its end, and left nothing."""
    assert f"before: moorage {release}\n" in job.output
    assert f"after: moorage {release}\n" in job.output
    assert "a container still starts\n" in job.output
    assert job.accounted("ExitCode") == ["0:0"]
    places = ("/var/lib/moorage/jobs", "/var/lib/moorage/scratch", "/run/moorage")
    assert shell.output("find", *places, "-maxdepth", "1", "-name", f"{job.id}*") == ""
