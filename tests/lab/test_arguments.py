"""What is wrong with a request is said in one line, before anything is started."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.common.errors import UserError
from virtual.guest import memory
from virtual.guest.cluster import check_ports
from virtual.guest.record import Request

VERBS = [
    "build",
    "up",
    "status",
    "ssh",
    "submit",
    "sync",
    "snapshot",
    "restore",
    "reset",
    "logs",
    "down",
    "clean",
    "baseline",
    "bench-start",
    "bench",
    "demo",
]
LAB = Path(__file__).with_name("lab")


def lab(*arguments: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(LAB), "--directory", str(directory), *arguments]
    return subprocess.run(
        command,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["fly"], 2, "invalid choice: 'fly'"),
        ([], 2, "the following arguments are required: VERB"),
        (["up", "--nodes", "many"], 2, "invalid int value: 'many'"),
        (["up", "--nodes", "9"], 2, "a lab has 1 to 4 nodes, not 9"),
        (["up", "--suite", "sarge"], 2, "invalid choice: 'sarge'"),
        (["up", "--port", "80"], 2, "80 is not between 1024 and 65000"),
        (["baseline", "--form", "tepid"], 2, "invalid choice: 'tepid'"),
        (["status"], 1, "start one with `lab up`"),
        (["ssh", "berth1"], 1, "start one with `lab up`"),
        (["down"], 1, "start one with `lab up`"),
        (["restore"], 1, "start one with `lab up`"),
    ],
)
def test_a_wrong_request(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    result = lab(*arguments, directory=tmp_path / "lab")
    assert result.returncode == code
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, tmp_path: Path) -> None:
    result = lab(verb, "--help", directory=tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: lab {verb}")


def test_too_little_memory_is_refused_with_the_figures() -> None:
    with pytest.raises(UserError, match="2 guests need 13600 MB of memory, 4000 MB are available"):
        memory.check(memory.shares(2), emulated=True, available=4000)


@pytest.mark.parametrize(("nodes", "megabytes"), [(2, 16000), (3, 24000), (4, 16000)])
def test_what_ordinary_machines_carry(nodes: int, megabytes: int) -> None:
    memory.check(memory.shares(nodes), emulated=True, available=int(megabytes * 0.93))


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} is in use"):
            check_ports(Request(1, "trixie", port - 1))


def test_too_little_disk_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=True)
    try:
        result = lab("build", directory=tmp_path / "lab", MOORAGE_CACHE=str(small))
        assert result.returncode == 1
        assert "make room, or name another place in MOORAGE_CACHE" in result.stderr.splitlines()[-1]
        assert [path.name for path in small.iterdir()] == []
    finally:
        subprocess.run(["umount", small], check=True)
