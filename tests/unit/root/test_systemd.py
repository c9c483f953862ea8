from __future__ import annotations

import array
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.common.command import CommandFailed
from moorage.root import systemd
from support.fakes import FakeCommand


@pytest.fixture(params=["file", "abstract"])
def ear(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    address = str(tmp_path / "notify") if request.param == "file" else f"@moorage-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(address.replace("@", "\0"))
        ear.settimeout(5)
        yield ear


def test_readiness(ear: socket.socket) -> None:
    systemd.notify("READY=1", "STATUS=waiting")
    assert ear.recv(4096) == b"READY=1\nSTATUS=waiting"


def test_a_descriptor_is_given_away(ear: socket.socket, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        systemd.keep(file.fileno(), "lock")
        text, ancillary, _, _ = ear.recvmsg(4096, socket.CMSG_SPACE(4))
        (given,) = array.array("i", ancillary[0][2])
        assert text == b"FDSTORE=1\nFDNAME=lock"
        assert os.path.sameopenfile(given, file.fileno())
    os.close(given)


def test_nobody_wants_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    systemd.notify("READY=1")


@pytest.mark.parametrize(
    ("environment", "kept"),
    [
        ({}, {}),
        ({"LISTEN_PID": "self", "LISTEN_FDS": "0"}, {}),
        ({"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "lock"}, {}),
        ({"LISTEN_PID": "self", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "lock"}, {"lock": 3}),
        ({"LISTEN_PID": "self", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:lock"}, {"a": 3, "lock": 4}),
    ],
)
def test_what_was_kept(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], kept: dict[str, int]) -> None:
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        monkeypatch.delenv(name, raising=False)
        if name in environment:
            monkeypatch.setenv(name, environment[name].replace("self", str(os.getpid())))
    passed: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "set_inheritable", lambda *words: passed.append(words))
    assert systemd.kept() == kept
    assert passed == [(number, False) for number in kept.values()]


def test_units(fake_command: Callable[..., FakeCommand]) -> None:
    systemctl = fake_command("systemctl")
    systemd.stop(systemd.warden_unit(17), 5)
    systemd.start_aside("moorage-trash.service", 5)
    assert systemctl.calls == [
        ["stop", "moorage-warden@17.service"],
        ["start", "--no-block", "moorage-trash.service"],
    ]


def test_a_unit_that_does_not_stop(fake_command: Callable[..., FakeCommand]) -> None:
    fake_command("systemctl", stderr="Failed to stop", code=1)
    with pytest.raises(CommandFailed, match="Failed to stop"):
        systemd.stop("x.service", 5)
