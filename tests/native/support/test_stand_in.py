"""What Podman starts instead of pasta: it makes no network, and is all that Podman wants to know of one that does."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from moorage.common.command import run
from moorage.root.podman_conf import Tools, stand_in

# As of Podman 5.4.
USUAL = "--config-net --mtu 65520 --pid {pid} --dns-forward 169.254.1.1 -t none -u none -T none -U none --no-map-gw"
REST = "--quiet --netns {netns} --map-guest-addr 169.254.1.2"
CONTAINERS = "/run/moorage/17/user/netns/netns-1234"
NAMESPACE = "/run/moorage/17/user/containers/networks/rootless-netns/rootless-netns"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return made(tmp_path / "pasta", "kernel")


def made(path: Path, driver: str, pasta: Path | None = None) -> Path:
    return executable(path, stand_in(Tools(Path("/usr/bin/podman"), Path("/usr/bin/crun"), driver, pasta=pasta)))


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def kept_in(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "rootless-netns-conn.pid"
    yield path
    with suppress(OSError, ValueError):
        os.kill(int(path.read_text()), signal.SIGKILL)


def start(program: Path, kept_in: Path, namespace: str = NAMESPACE) -> int:
    """Podman takes the output until nobody has it any more, which `run` does not: what still runs must not have it."""
    words = f"{USUAL} {REST}".format(pid=kept_in, netns=namespace).split()
    done = subprocess.run([program, *words], check=True, capture_output=True, timeout=10)
    assert done.stdout + done.stderr == b""
    return int(kept_in.read_text())


def test_leaves_a_process_that_lives_until_it_is_told_to_end(program: Path, kept_in: Path) -> None:
    process = start(program, kept_in)
    watched = os.pidfd_open(process)
    try:
        os.kill(process, 0)
        assert leads_a_session(process)
        assert Path(f"/proc/{process}/cwd").readlink() == Path("/")
        os.kill(process, signal.SIGTERM)
        assert ended(watched)
    finally:
        os.close(watched)


def test_makes_no_network(program: Path, kept_in: Path, fresh_namespaces: None) -> None:
    before = Path("/proc/net/dev").read_text().count(":")
    start(program, kept_in)
    assert Path("/proc/net/dev").read_text().count(":") == before


def test_a_container_that_wants_a_pasta_of_its_own_has_the_nodes(tmp_path: Path) -> None:
    """Steps of a build are such."""
    nodes = executable(tmp_path / "nodes", '#!/bin/sh\necho "$@"\n')
    program = made(tmp_path / "pasta", "kernel", nodes)
    words = f"{USUAL} {REST}".format(pid="/run/pid", netns=CONTAINERS).split()
    assert run([program, *words], limit=10).stdout == f"{' '.join(words)}\n"


def test_where_the_node_has_none_it_is_refused(program: Path, kept_in: Path) -> None:
    """Else it would start, and reach nobody."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        start(program, kept_in, CONTAINERS)
    assert refused.value.stderr == b"there is no pasta on this node: leave --network away, or name a network\n"
    assert not kept_in.exists()


def test_who_wants_no_way_out_has_none(tmp_path: Path, kept_in: Path) -> None:
    program = made(tmp_path / "pasta", "none", Path("/usr/bin/false"))
    start(program, kept_in, CONTAINERS)
    # Podman before 6.1 does not ask for a process here.
    assert run([program, "--config-net", "--quiet", "--netns", CONTAINERS], limit=10).stdout == ""


def leads_a_session(process: int, limit: float = 10) -> bool:
    """Soon after it has been started."""
    end = time.monotonic() + limit
    while not (leads := os.getsid(process) == process) and time.monotonic() < end:
        time.sleep(0.01)
    return leads


def ended(process: int) -> bool:
    return bool(select.select([process], [], [], 10)[0])
