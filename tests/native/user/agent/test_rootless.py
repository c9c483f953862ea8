"""The namespaces of a job's Podman, in which the node's service manager is hidden: real mounts, as users have them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from moorage.common.command import run
from moorage.common.description import Kubernetes, Mooring, Waits
from moorage.common.podman import Places
from moorage.common.spec import Spec
from moorage.user.agent import rootless

# It leaves a process behind that holds the namespaces, as the real one does with the first thing that it is told.
PODMAN = """\
#!/bin/sh
mkdir -p "$XDG_RUNTIME_DIR/libpod/tmp"
shift
exec unshare --user --map-root-user --mount sh -euc '
    setsid sleep infinity </dev/null >/dev/null 2>&1 &
    echo $! >"$XDG_RUNTIME_DIR/libpod/tmp/pause.pid"
    exec "$@"
' sh "$@"
"""
STUB = "nameserver 127.0.0.53\n"


@pytest.fixture
def run_of_the_node(fresh_namespaces: None) -> Path:
    place = Path("/run")
    run(["mount", "-t", "tmpfs", "-o", "nosuid,nodev,mode=755", "tmpfs", place])
    (place / "systemd" / "system").mkdir(parents=True)
    return place


@pytest.fixture
def mooring(tmp_path: Path, run_of_the_node: Path) -> Iterator[Mooring]:
    program = tmp_path / "podman"
    program.write_text(PODMAN)
    program.chmod(0o755)
    spec, places = Spec(enabled=True, cluster="none"), Places(tmp_path)
    mooring = Mooring(17, 0, "node1", spec, program, "pasta", None, Waits(), Kubernetes(), places)
    yield mooring
    with suppress(FileNotFoundError):
        os.kill(int((mooring.places.temporary / "pause.pid").read_text()), signal.SIGKILL)


def prepared(mooring: Mooring) -> int:
    """The process that holds the namespaces."""
    rootless.prepare(mooring, mooring.places.run / "log")
    return int((mooring.places.temporary / "pause.pid").read_text())


def seen(holder: int, *words: str | Path, ok: tuple[int, ...] = (0,)) -> str:
    return run(["nsenter", f"--target={holder}", "--user", "--mount", *words], ok=ok).stdout


def test_the_service_manager_is_hidden_and_its_resolver_is_not(
    mooring: Mooring, run_of_the_node: Path, tmp_path: Path
) -> None:
    resolver = run_of_the_node / "systemd" / "resolve"
    resolver.mkdir()
    (resolver / "stub-resolv.conf").write_text(STUB)
    link = tmp_path / "resolv.conf"
    link.symlink_to(resolver / "stub-resolv.conf")
    holder = prepared(mooring)
    assert seen(holder, "ls", "/run/systemd") == "resolve\n"
    assert seen(holder, "cat", link) == STUB
    # The resolver writes another one in its place whenever something has changed.
    (resolver / "new").write_text("nameserver 192.0.2.53\n")
    (resolver / "new").rename(resolver / "stub-resolv.conf")
    assert seen(holder, "cat", link) == "nameserver 192.0.2.53\n"
    for place in ("/run/systemd/mine", resolver / "mine"):
        assert seen(holder, "touch", place, ok=(1,)) == ""


def test_there_may_be_no_resolver_of_that_kind(mooring: Mooring) -> None:
    holder = prepared(mooring)
    assert seen(holder, "ls", "/run/systemd") == ""
    seen(holder, "touch", "/run/systemd/mine", ok=(1,))


def test_a_node_without_a_service_manager_is_left_as_it_is(mooring: Mooring, run_of_the_node: Path) -> None:
    run(["rm", "-r", run_of_the_node / "systemd"])
    assert seen(prepared(mooring), "ls", "/run") == ""
