"""A guest as the role leaves it is found fit by the checks that a site runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from moorage.command import run
from virtual.cluster import Cluster
from virtual.machine import Machine

TESTINFRA = Path(__file__).resolve().parents[2] / "testinfra"


def checked(machine: Machine, directory: Path) -> tuple[str, bool]:
    """What pytest says of the checks on this guest, and whether all passed."""
    file = directory / f"ssh-{machine.name}"
    file.write_text(machine.shell.configuration)
    hosts = ["--hosts=ssh://root@127.0.0.1", f"--ssh-config={file}"]
    checks = [sys.executable, "-m", "pytest", "--quiet", "--no-header", "--tb=line"]
    said = run([*checks, *hosts, str(TESTINFRA)], env=dict(os.environ), limit=300, ok=(0, 1))
    return said.stdout, said.code == 0


def test_every_node_passes_the_checks_of_a_site(lab: Cluster, tmp_path: Path) -> None:
    for machine in lab.machines:
        said, passed = checked(machine, tmp_path)
        assert passed, said


@pytest.mark.parametrize("lab", ["trixie"], indirect=True)
def test_a_fault_is_named_with_its_remedy(lab: Cluster, tmp_path: Path) -> None:
    shell = lab.first.shell
    shell.run(["mv", "/etc/containers/policy.json", "/etc/containers/policy.json.away"])
    try:
        said, passed = checked(lab.first, tmp_path)
    finally:
        shell.run(["mv", "/etc/containers/policy.json.away", "/etc/containers/policy.json"])
    assert not passed
    assert "podman: there is no /etc/containers/policy.json: install the package containers-common" in said
