"""Is a node fit for jobs with --k8s? For a site: pytest tests/testinfra --hosts=ssh://node1,ssh://node2 --sudo"""

from __future__ import annotations

import json

import pytest
from testinfra.host import Host

MOORAGE = "/opt/moorage/bin/moorage"


def test_nothing_would_keep_a_job_from_starting(host: Host) -> None:
    """All that the doctor knows of, the checks of the Prolog among them; each line of a failure names its remedy."""
    said = host.run(f"{MOORAGE} doctor --json")
    assert said.stdout, f"moorage doctor did not run: {said.stderr}"
    report = json.loads(said.stdout)
    faults = [one for one in report["findings"] if one["fault"] != "advice"]
    assert not faults, "\n".join(f"{one['check']}: {one['cause']}: {one['remedy']}" for one in faults)
    assert not report["not_looked_at"], "only root sees everything: pytest --sudo"


def test_the_configuration_is_shown(host: Host) -> None:
    said = host.run(f"{MOORAGE} config show --json")
    assert said.succeeded, said.stderr
    assert "scratch.path" in json.loads(said.stdout)


def test_jobs_are_swept_from_time_to_time(host: Host) -> None:
    assert host.service("moorage-sweep.timer").is_running


@pytest.mark.parametrize(
    ("place", "mode"),
    [("/run/moorage", 0o755), ("/var/lib/moorage", 0o755), ("/var/lib/moorage/jobs", 0o700)],
)
def test_directories_are_roots(host: Host, place: str, mode: int) -> None:
    directory = host.file(place)
    assert (directory.user, directory.group, directory.mode) == ("root", "root", mode)
