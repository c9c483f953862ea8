"""The Prolog's decisions, and its gate for jobs that know nothing of it."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest

from moorage.common.command import CommandError
from moorage.common.errors import MoorageError, Taken, UserError
from moorage.node import slurmconf
from moorage.node.config.schema import Config
from moorage.node.finding import Finding, unforeseen
from moorage.root.prolog import Known, exit_code

GATE = Path(__file__).parents[3] / "prolog.d" / "50-moorage"
FAIL, DRAIN = Config(node_fault="fail"), Config(node_fault="drain")

NODE = Finding("kernel", "the kernel is old", "boot another")
USER = Finding("subuid", "no subuids", "ask for some", "user")


@pytest.mark.parametrize(
    ("findings", "config", "shim", "code"),
    [
        ([USER], FAIL, True, 0),
        ([USER], DRAIN, True, 0),
        ([USER, USER], DRAIN, True, 0),
        ([NODE], FAIL, True, 0),
        ([NODE], DRAIN, True, 1),
        ([USER, NODE], DRAIN, True, 1),
        ([NODE], FAIL, False, 1),
        ([USER], FAIL, False, 1),
    ],
)
def test_what_becomes_of_the_node(findings: list[Finding], config: Config, shim: bool, code: int) -> None:
    assert exit_code(findings, Known(config, shim)) == code


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("moorage.yaml:3: no", "write yes"), "moorage.yaml:3: no: write yes"),
        (MoorageError("SLURM_JOB_ID is 'x'"), "SLURM_JOB_ID is 'x': tell the administrator of this node"),
        (
            CommandError(("systemctl",), "killed after 30 s"),
            "systemctl: killed after 30 s: tell the administrator",
        ),
        (ValueError("so\nwhat"), "ValueError: so\nwhat: tell the administrator of this node"),
        (FileNotFoundError(2, "No such file", "/x"), "FileNotFoundError: [Errno 2] No such file: '/x': tell the"),
    ],
)
def test_what_nobody_foresaw_is_a_fault_of_the_node(error: Exception, line: str) -> None:
    found = unforeseen(error)
    assert str(found).startswith(line)
    assert found.fault == "node"


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """The gate, with a fake in the place of our Python; it notes that it was called."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/called\nexit 7\n')
    python.chmod(0o755)
    gate = tmp_path / "gate"
    gate.write_text(GATE.read_text().replace("/opt/moorage/bin/python3", str(python)))
    gate.chmod(0o755)
    return gate


@pytest.mark.commands("gate")
@pytest.mark.parametrize(
    ("environ", "called"),
    [
        ({}, False),
        ({"SPANK_K8S": ""}, False),
        ({"SPANK_K8S": "0"}, False),
        ({"SPANK_K8S": "1"}, True),
        ({"SPANK_K8S": "cluster=none"}, True),
        ({"SPANK_K8S": "-n"}, True),
        ({"SPANK_K8S": "!"}, True),
        ({"SPANK_K8S": "("}, True),
        ({"SPANK_K8S": "0 -o x"}, True),
        ({"SPANK_K8S": "$(touch evil)"}, True),
        ({"SPANK_K8S": "x" * 1024}, True),
    ],
)
def test_the_gate(interpreter: Path, tmp_path: Path, environ: dict[str, str], called: bool) -> None:
    # slurmd gives its hooks no PATH.
    ended = subprocess.run([interpreter], env=environ, cwd=tmp_path, check=False, capture_output=True)
    assert ended.returncode == (7 if called else 0)
    assert (tmp_path / "called").exists() is called
    assert not (tmp_path / "evil").exists()
    assert (ended.stdout, ended.stderr) == (b"", b"")
    assert not called or (tmp_path / "called").read_text() == "-I -m moorage.prolog\n"


def test_the_gate_can_be_run() -> None:
    assert GATE.stat().st_mode & 0o777 == 0o755
    assert GATE.name == slurmconf.HOOK


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("config", [FAIL, DRAIN])
def test_a_full_disk_drains_no_node(number: int, config: Config) -> None:
    """Users fill it: with their jobs' scratch, or beside it."""
    found = unforeseen(OSError(number, "full"))
    assert found.fault == "room"
    assert exit_code([found], Known(config, True)) == 0
    assert exit_code([found, NODE], Known(config, True)) == (config is DRAIN)


def test_what_others_have_taken_drains_no_node() -> None:
    """As the room for a copy of the images, or the time for it."""
    found = unforeseen(Taken("only 1 MiB is left", "make room"))
    assert str(found) == "only 1 MiB is left: make room"
    assert exit_code([found], Known(DRAIN, True)) == 0
