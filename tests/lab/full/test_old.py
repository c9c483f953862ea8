"""A system that is too old: booted, to be refused before anything is changed."""

from __future__ import annotations

import json

import pytest

from moorage.common.command import CommandFailed
from virtual import builds, guestfiles, rollout
from virtual.cache import CACHE
from virtual.record import Request
from virtual.site import Site

DIRECTORY = CACHE / "test-old"
PORT = 22950
# The doctor without an installation, with what Debian itself has of Python.
DOCTOR = """
mkdir /tmp/doctor
cd /tmp/doctor
tar -x
python3 -B -m moorage doctor --json
"""
NEWER_PODMAN = "install podman 4.9 or newer"
NEWER_SLURM = "install Slurm 23.11 or newer"


def test_debian_12_is_refused_before_anything_is_changed() -> None:
    with builds.own(DIRECTORY, Request(1, "bookworm", PORT, bare=True)) as lab:
        shell = lab.first.shell
        # Where only users may have containers, this Podman tells root nothing, not even its version.
        has = dict(line.split() for line in shell.output("dpkg-query", "--show", "podman", "crun").splitlines())
        assert has["podman"].startswith("4.3.")
        assert has["crun"].startswith("1.8.1-")
        said = shell.run(["sh", "-euc", DOCTOR], input=guestfiles.package(), ok=(1,)).stdout
        remedies = {finding["check"]: finding["remedy"] for finding in reversed(json.loads(said)["findings"])}
        assert (remedies["podman"], remedies["slurm"]) == (NEWER_PODMAN, NEWER_SLURM)
        before = rollout.system(shell)
        site = Site(lab.directory / "site", lab.first)
        site.directory.mkdir()
        with pytest.raises(CommandFailed, match=r"see \S+\.log") as refused:
            site.install()
        assert rollout.differences(before, rollout.system(shell)) == []
        log = next(site.directory.glob("install-*.log")).read_text()
    assert "cannot carry Moorage: Podman 4.3 and crun 1.8.1 of Debian 12 are too old" in log, refused.value
