"""The namespaces that other native tests run in."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from moorage.common.command import run
from support.namespaces import MOUNT, NETWORK, fresh, inside, network


def identities() -> tuple[str, ...]:
    return tuple(str(Path(f"/proc/thread-self/ns/{kind}").readlink()) for kind in ("net", "mnt"))


@pytest.mark.usefixtures("fresh_namespaces")
def test_only_the_loopback_is_there() -> None:
    assert [name for _, name in socket.if_nameindex()] == ["lo"]


def test_mounts_stay_inside(tmp_path: Path) -> None:
    with fresh(MOUNT):
        # As systemd makes it; where it is not shared anyway, nothing could come out.
        run(["mount", "--make-rshared", "/"])
        with fresh(MOUNT):
            run(["mount", "-t", "tmpfs", "moorage-test", tmp_path])
            assert "moorage-test" in Path("/proc/thread-self/mounts").read_text()
        assert "moorage-test" not in Path("/proc/thread-self/mounts").read_text()


def test_commands_run_inside() -> None:
    with fresh(NETWORK, MOUNT):
        assert run(["readlink", "/proc/self/ns/net", "/proc/self/ns/mnt"]).stdout.split() == list(identities())


def test_everything_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = identities()
    with fresh(NETWORK, MOUNT):
        assert not set(identities()) & set(before)
    assert identities() == before
    assert Path.cwd() == tmp_path


def test_everything_is_as_before_after_a_failure() -> None:
    before = identities()
    with pytest.raises(ZeroDivisionError), fresh(NETWORK, MOUNT):
        raise ZeroDivisionError
    assert identities() == before


def test_a_network_can_be_visited() -> None:
    outside = identities()
    with network() as other:
        with inside(other):
            assert identities()[0] != outside[0]
            assert [name for _, name in socket.if_nameindex()] == ["lo"]
        assert identities() == outside
