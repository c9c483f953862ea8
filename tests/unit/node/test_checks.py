"""The list of checks: what is asked of the node as a whole, and of the user's account."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.common.job import Job
from moorage.linux.idmap import Range
from moorage.node.checks import Surroundings, look_around, node_checks, slurm_places, user_checks
from moorage.node.config.schema import Config, Slurm
from moorage.node.factcache import Facts
from moorage.node.finding import Finding
from moorage.node.hostfiles import Node
from moorage.node.programs import Program
from support.fakes import FakeCommand

ENOUGH = {"uid": [Range(1 << 30, 65536)], "gid": [Range(1 << 30, 65536)]}


def job(uid: int, user: str) -> Job:
    return Job(17, 0, uid, 1001, user, "n1", frozenset())


@pytest.mark.parametrize(
    ("parent", "configured", "first"),
    [
        ("/usr/sbin/slurmd", None, ["/usr/sbin", "/usr/bin", "/usr/sbin"]),
        ("/opt/slurm/sbin/slurmd", None, ["/opt/slurm/sbin", "/opt/slurm/bin", "/opt/slurm/sbin"]),
        (
            "/opt/slurm/sbin/slurmstepd",
            "/sw/slurm/bin",
            ["/sw/slurm/bin", "/sw/slurm/bin", "/sw/slurm/sbin", "/opt/slurm/sbin"],
        ),
        ("/bin/bash", None, []),
    ],
)
def test_where_slurms_programs_are(parent: str, configured: str | None, first: list[str]) -> None:
    config = Config(slurm=Slurm(Path(configured) if configured else None))
    assert [str(place) for place in slurm_places(config, Path(parent))][: len(first)] == first


def test_root_submits_no_such_jobs() -> None:
    (found,) = user_checks(job(0, "root"), ENOUGH)
    assert (str(found), found.fault) == ("root cannot use --k8s: submit the job as a user", "user")


def test_a_user_whom_the_node_knows_by_another_id_is_its_fault() -> None:
    (found,) = user_checks(job(54321, "nobody"), ENOUGH)
    assert str(found).startswith("user nobody is 54321 to Slurm and 65534 to this node: ")
    assert found.fault == "node"


def test_a_user_whom_only_slurm_knows_passes(tmp_path: Path) -> None:
    assert list(user_checks(job(54321, "no-such-user-here"), ENOUGH, Node(tmp_path))) == []


def test_a_user_with_ids_passes(tmp_path: Path) -> None:
    assert list(user_checks(job(65534, "nobody"), ENOUGH, Node(tmp_path))) == []


def test_both_kinds_of_ids_are_checked(tmp_path: Path) -> None:
    found = list(user_checks(job(65534, "nobody"), {"uid": [], "gid": []}, Node(tmp_path)))
    assert [finding.check for finding in found] == ["subuid", "subgid"]


def surroundings(tmp_path: Path, slurmd: str = "slurm-wlm 24.11.5", **programs: str) -> Surroundings:
    return Surroundings(
        programs={name: Program(tmp_path / name, version) for name, version in programs.items()},
        slurmd=Program(tmp_path / "slurmd", slurmd),
        srun=None,
        slurm_conf=tmp_path / "slurm.conf",
        slurm={},
        hindered={},
    )


def found_by_node_checks(around: Surroundings, node: Node) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in node_checks(Config(), around, Facts(), node):
        found.setdefault(finding.check, []).append(finding)
        assert finding.fault == "node"
    return found


def test_every_part_has_its_say(tmp_path: Path) -> None:
    """A node on which nothing is right is told so in all respects, the shim first."""
    (tmp_path / "proc" / "self" / "ns").mkdir(parents=True)
    found = found_by_node_checks(surroundings(tmp_path, podman="podman version 5.4.2"), Node(tmp_path))
    assert next(iter(found)) == "shim"
    assert set(found) >= {"shim", "slurm", "systemd", "cgroup", "modules", "devices", "podman", "programs", "runtime"}
    assert set(found) >= {"uplink", "scratch"}
    assert any("policy.json" in str(finding) for finding in found["podman"])


@pytest.mark.parametrize(("ours", "first", "bad"), [("mnt:[1]", "mnt:[1]", False), ("mnt:[2]", "mnt:[1]", True)])
def test_mounts_must_be_everybodys(tmp_path: Path, ours: str, first: str, bad: bool) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    for process, namespace in (("self", ours), ("1", first)):
        (tmp_path / "proc" / process / "ns").mkdir(parents=True)
        (tmp_path / "proc" / process / "ns" / "mnt").symlink_to(namespace)
    found = found_by_node_checks(surroundings(tmp_path), Node(tmp_path)).get("systemd", [])
    assert [finding.cause for finding in found] == ["slurmd runs in a mount namespace of its own"] * bad


def test_an_old_slurm_is_found(tmp_path: Path) -> None:
    found = found_by_node_checks(surroundings(tmp_path, slurmd="slurm 23.02.7"), Node(tmp_path))
    assert "this node runs slurm 23.02.7: install Slurm 23.11 or newer" in map(str, found["slurm"])


@pytest.mark.usefixtures("bare_node")
def test_a_look_around(fake_command: Callable[..., FakeCommand], tmp_path: Path) -> None:
    slurmd = fake_command("slurmd", stdout="slurm-wlm 24.11.5\n")
    fake_command("podman", stdout="podman version 5.4.2\n")
    fake_command("pasta", stdout="pasta 2025_05_03\n")
    srun = fake_command("srun")
    around = look_around(Config(), Facts(), {"SLURM_CONF": "/run/slurm/conf/slurm.conf"})
    assert around.slurmd == Program(slurmd.path, "slurm-wlm 24.11.5")
    assert (around.srun, around.slurm_conf) == (srun.path, Path("/run/slurm/conf/slurm.conf"))
    assert (around.offer.podman, around.offer.helpers["pasta"]) == ("podman version 5.4.2", "pasta 2025_05_03")
    assert slurmd.calls == [["-V"]]
    assert srun.calls == []
