"""What Slurm's health check does with what `moorage doctor` says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux import mounts
from moorage.node.config.values import MIB
from support.fakes import FakeCommand
from support.namespaces import MOUNT, fresh

SCRIPT = Path(__file__).parents[3] / "config/health-check"
# All that slurmd gives it.
ENVIRONMENT = {"SLURMD_NODENAME": "n1"}
PROGRAMS = Path("/usr/local/sbin")
MOORAGE = Path("/opt/moorage/bin")


@pytest.fixture(autouse=True)
def node() -> Iterator[None]:
    with fresh(MOUNT):
        for place in (PROGRAMS, Path("/opt")):
            mounts.mount_tmpfs(place, size=MIB, inodes=1000, uid=0, gid=0, mode=0o755)
        MOORAGE.mkdir(parents=True)
        yield


@pytest.mark.parametrize(
    ("code", "state", "drained"),
    [
        (0, "idle", False),
        (1, "idle", True),
        (1, "mixed", True),
        (1, "allocated*", True),
        (1, "drained", False),
        (1, "draining", False),
        (1, "down*", False),
        (3, "idle", False),
    ],
)
def test_only_a_fault_drains_and_only_a_node_that_takes_jobs(code: int, state: str, drained: bool) -> None:
    doctor = FakeCommand(MOORAGE, "moorage", stdout="clock: it is 1970: set it\nunits: none\n", code=code)
    scontrol = slurm(state)
    subprocess.run([SCRIPT], env=ENVIRONMENT, check=True)
    assert doctor.calls == [["doctor", "--quick"]]
    reason = "Reason=moorage: clock: it is 1970: set it"
    assert scontrol.calls == ([["update", "NodeName=n1", "State=DRAIN", reason]] if drained else [])


@pytest.mark.parametrize("code", [1, 2, 4, 127, 137])
def test_a_doctor_that_fails_has_found_nothing(code: int) -> None:
    """Python ends with 1 as well, where a module is missing. slurmd logs the code and the words."""
    FakeCommand(MOORAGE, "moorage", stderr="Traceback (most recent call last):\n", code=code)
    scontrol = slurm("idle")
    ended = subprocess.run([SCRIPT], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, "Traceback (most recent call last):\n")
    assert scontrol.calls == []


@pytest.mark.parametrize("code", [4, 137])
def test_half_a_report_drains_no_node(code: int) -> None:
    FakeCommand(MOORAGE, "moorage", stdout="clock: it is 1970: set it\n", code=code)
    scontrol = slurm("idle")
    assert subprocess.run([SCRIPT], env=ENVIRONMENT, check=False).returncode == code
    assert scontrol.calls == []


def slurm(state: str) -> FakeCommand:
    FakeCommand(PROGRAMS, "sinfo", stdout=f"{state}\n")
    return FakeCommand(PROGRAMS, "scontrol")
