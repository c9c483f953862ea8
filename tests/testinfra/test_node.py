"""Is a node fit for jobs with --k8s? For a site: pytest tests/testinfra --hosts=ssh://node1,ssh://node2 --sudo"""

from __future__ import annotations

import json

import pytest
from testinfra.host import Host

MOORAGE = "/opt/moorage/bin/moorage"


def test_nothing_would_keep_a_job_from_starting(host: Host) -> None:
    """The checks of the Prolog, by the same code; each line of a failure names a cause and its remedy."""
    said = host.run(f"{MOORAGE} doctor --json")
    assert said.stdout, f"moorage doctor did not run: {said.stderr}"
    found = json.loads(said.stdout)
    assert not found, "\n".join(f"{one['check']}: {one['cause']}: {one['remedy']}" for one in found)


@pytest.mark.parametrize("unit", ["moorage-sweep.service", "moorage-trash.service"])
def test_what_has_work_at_boot_is_enabled(host: Host, unit: str) -> None:
    assert host.service(unit).is_enabled


@pytest.mark.parametrize(
    ("place", "mode"),
    [("/run/moorage", 0o755), ("/var/lib/moorage", 0o755), ("/var/lib/moorage/jobs", 0o700)],
)
def test_directories_are_roots(host: Host, place: str, mode: int) -> None:
    directory = host.file(place)
    assert (directory.user, directory.group, directory.mode) == ("root", "root", mode)
