"""Guests as the role leaves them are found fit by the checks that a site runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent

import pytest

from moorage.common.command import run
from virtual.guest.cluster import Cluster
from virtual.guest.machine import Machine
from virtual.guest.shell import Shell

TESTINFRA = Path(__file__).resolve().parents[2] / "testinfra"
POLICY = "/etc/containers/policy.json"
PODMAN = "/usr/bin/podman"
OTHER_PODMAN = b"#!/bin/sh\necho podman version 5.99.0\n"
ON_ONE_RELEASE = pytest.mark.parametrize("lab", ["trixie"], indirect=True)


def checked(machines: Sequence[Machine], directory: Path) -> tuple[str, bool]:
    """What pytest says of the checks on these guests, as a site calls it, and whether all passed."""
    file = directory / "ssh"
    sections = (f"Host {one.name}\n  HostName 127.0.0.1\n{indent(one.shell.configuration, '  ')}" for one in machines)
    file.write_text("".join(sections))
    hosts = [f"--hosts={','.join(f'ssh://root@{one.name}' for one in machines)}", f"--ssh-config={file}"]
    checks = [sys.executable, "-m", "pytest", "--quiet", "--no-header", "--tb=line"]
    said = run([*checks, *hosts, str(TESTINFRA)], env=dict(os.environ), limit=300, ok=(0, 1))
    return said.stdout, said.code == 0


@contextmanager
def away(shell: Shell, path: str, instead: bytes = b"") -> Iterator[None]:
    shell.run(["mv", path, f"{path}.away"])
    try:
        if instead:
            shell.run(["sh", "-euc", 'cat >"$1"; chmod 755 "$1"', "sh", path], input=instead)
        yield
    finally:
        shell.run(["mv", f"{path}.away", path])


def test_every_node_passes_the_checks_of_a_site(lab: Cluster, tmp_path: Path) -> None:
    said, passed = checked(lab.machines, tmp_path)
    assert passed, said


@ON_ONE_RELEASE
def test_a_fault_is_named_with_its_remedy(lab: Cluster, tmp_path: Path) -> None:
    with away(lab.first.shell, POLICY):
        said, passed = checked([lab.first], tmp_path)
    assert not passed
    assert f"podman: there is no {POLICY}: install the package containers-common" in said


@ON_ONE_RELEASE
def test_nodes_that_differ_are_told(lab: Cluster, tmp_path: Path) -> None:
    if len(lab.machines) < 2:
        pytest.skip("one guest is all there is")
    with away(lab.machines[-1].shell, PODMAN, OTHER_PODMAN):
        said, passed = checked(lab.machines, tmp_path)
    assert not passed
    assert "podman is podman version 5.99.0, and podman version " in said
    assert "install the same on both" in said
