"""The role's playbooks in check mode, on hosts of which only their facts are recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux import mounts
from moorage.node.config.values import MIB
from support.namespaces import MOUNT, fresh
from support.playbook import check

SLURM = Path("/etc/slurm")
HOOKS = "Hooks on compute nodes, before slurm.conf names them"
CONTROLLER = "What slurm.conf needs"
ADDED = (
    "ProctrackType=proctrack/cgroup", "TaskPlugin=task/cgroup,task/affinity",
    "JobAcctGatherType=jobacct_gather/cgroup", "PrologFlags=Alloc,Contain",
    "Prolog=/etc/slurm/prolog.d/*", "Epilog=/etc/slurm/epilog.d/*",
)  # fmt: skip
EDIT = "--extra-vars=moorage_slurm_conf=edit"
TAKEN = (
    "debian-13", "debian-unstable", "ubuntu-24.04", "rhel-9.6", "almalinux-9.6", "centos-stream-9", "rocky-10.0",
    "centos-stream-10",
)  # fmt: skip
REFUSED = {
    "debian-12": "Debian 12.12 cannot carry Moorage: Podman 4.3 and crun 1.8.1 of Debian 12 are too old",
    "ubuntu-22.04": "Ubuntu 22.04 cannot carry Moorage: Podman of Ubuntu before 24.04 is older than 4.9",
    "rocky-9.2": "Rocky 9.2 cannot carry Moorage: Podman before release 9.4 is older than 4.9",
    "fedora-42": "Fedora 42 cannot carry Moorage: choose one of Debian, Ubuntu, RedHat-9, RedHat-10",
}


@pytest.fixture(autouse=True)
def slurm() -> Iterator[Path]:
    """A place for a slurm.conf that is nobody's."""
    SLURM.mkdir(exist_ok=True)
    with fresh(MOUNT):
        mounts.mount_tmpfs(SLURM, size=MIB, inodes=100, uid=0, gid=0, mode=0o755)
        (SLURM / "slurm.conf").write_text("ClusterName=site\n")
        yield SLURM


def recap(said: str) -> dict[str, dict[str, int]]:
    """What became of each host, in numbers of tasks."""
    rows = re.findall(r"^(\S+) +: (ok=.*)$", said.partition("PLAY RECAP")[2], re.MULTILINE)
    return {host: {word: int(number) for word, number in re.findall(r"(\w+)=(\d+)", row)} for host, row in rows}


def plays(said: str) -> list[str]:
    return re.findall(r"^PLAY \[(.+?)\]", said, re.MULTILINE)


def added(said: str) -> list[str]:
    """The lines that would come into slurm.conf."""
    return re.findall(r"^\+(\w+=.*)$", said.partition(f"PLAY [{CONTROLLER}]")[2].partition("\nPLAY [")[0], re.MULTILINE)


def test_systems_are_taken_or_refused_in_a_line_that_says_why(tmp_path: Path) -> None:
    hosts = {name: name for name in (*TAKEN, *REFUSED)}
    said = check(
        tmp_path, "install.yml", {"login": hosts}, "--extra-vars", json.dumps({"moorage_login_parts": []})
    ).stdout
    failed = {host for host, numbers in recap(said).items() if numbers["failed"]}
    assert failed == set(REFUSED)
    for host, words in REFUSED.items():
        (line,) = re.findall(rf'^fatal: \[{host}\]: FAILED! => .*?"msg": "([^"]*)"', said, re.MULTILINE | re.DOTALL)
        assert line.startswith(words)


@pytest.mark.parametrize("facts", ["debian-12", ""], ids=["too old", "not reached"])
def test_slurm_conf_is_left_alone_while_a_compute_node_has_no_hooks(tmp_path: Path, facts: str) -> None:
    groups = {"compute": {"n1": "debian-13", "n2": facts}, "controller": {"c": "debian-13"}}
    done = check(tmp_path, "install.yml", groups, EDIT)
    assert done.code != 0
    assert added(done.stdout) == []
    assert facts or "n2 did not get the hooks: slurm.conf stays as it is" in done.stdout


def test_what_slurm_conf_needs_comes_after_the_hooks(tmp_path: Path, slurm: Path) -> None:
    groups = {"compute": {"n1": "debian-13"}, "controller": {"c": "debian-13"}}
    done = check(tmp_path, "install.yml", groups, EDIT)
    first, second, *_ = plays(done.stdout)[1:]
    assert (first, second) == (HOOKS, CONTROLLER)
    assert added(done.stdout) == [*ADDED]
    assert (slurm / "slurm.conf").read_text() == "ClusterName=site\n"
