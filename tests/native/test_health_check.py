"""What Slurm's health check does with what `moorage doctor` says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage import mounts
from moorage.settings import MIB
from support.fakes import FakeCommand
from support.namespaces import MOUNT, fresh

SCRIPT = Path(__file__).parents[2] / "config/health-check"
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
        (127, "idle", False),
    ],
)
def test_only_a_fault_drains_and_only_a_node_that_takes_jobs(code: int, state: str, drained: bool) -> None:
    doctor = FakeCommand(MOORAGE, "moorage", stdout="clock: it is 1970: set it\nunits: none\n", code=code)
    FakeCommand(PROGRAMS, "sinfo", stdout=f"{state}\n")
    scontrol = FakeCommand(PROGRAMS, "scontrol")
    subprocess.run([SCRIPT], env=ENVIRONMENT, check=True)
    assert doctor.calls == [["doctor", "--quick"]]
    reason = "Reason=moorage: clock: it is 1970: set it"
    assert scontrol.calls == ([["update", "NodeName=n1", "State=DRAIN", reason]] if drained else [])
