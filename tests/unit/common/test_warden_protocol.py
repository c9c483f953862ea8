from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage.common import warden_protocol
from moorage.common.errors import MoorageError
from moorage.common.warden_protocol import Delegate, Lend, Plug, Request, Tell, Usage


@pytest.mark.parametrize(
    "request_",
    [Lend(), Delegate(), Usage(), Plug("fabric"), Plug("uplink"), Tell("podman"), Tell("failed", "no cgroup")],
)
def test_requests(request_: Request) -> None:
    assert warden_protocol.decode(warden_protocol.encode(request_)) == request_


def test_the_cause_may_be_left_out() -> None:
    assert warden_protocol.decode(b'{"verb": "tell", "word": "podman"}') == Tell("podman")


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"null",
        b"{}",
        b'{"verb": null}',
        b'{"verb": "kill"}',
        b'{"verb": "usage", "job": 18}',
        b'{"verb": "usage", "what": "fabric"}',
        b'{"verb": "plug"}',
        b'{"verb": "plug", "what": null}',
        b'{"verb": "plug", "what": "eth0"}',
        b'{"verb": "plug", "what": "fabric", "job": 18}',
        b'{"verb": "usage", "word": "podman"}',
        b'{"verb": "tell"}',
        b'{"verb": "tell", "word": 1}',
        b'{"verb": "tell", "word": "podman", "cause": 1}',
        b'{"verb": "tell", "word": null}',
        b'{"verb": "tell", "word": {"word": "podman"}}',
        b'{"verb": "tell", "word": "podman", "at": "1"}',
        b'["verb", "usage"]',
        b'{"verb": "usage"',
        b"[" * 4096,
        b"\xff",
        b'{"verb": "usage"}' + b" " * warden_protocol.LONGEST,
    ],
)
def test_what_is_no_request(packet: bytes) -> None:
    with pytest.raises(warden_protocol.Refused, match="not understood"):
        warden_protocol.decode(packet)


def test_answers() -> None:
    assert warden_protocol.outcome(warden_protocol.ok({"tree": "/x"})) == {"tree": "/x"}
    with pytest.raises(warden_protocol.Refused, match="not now"):
        warden_protocol.outcome(warden_protocol.error("not now"))


@pytest.mark.parametrize("line", ["x" * 100000, "\0" * 5000, "é" * 5000, '"\\' * 3000])
def test_no_error_is_too_long_to_be_sent(line: str) -> None:
    assert len(warden_protocol.error(line)) <= warden_protocol.LONGEST
    with pytest.raises(warden_protocol.Refused):
        warden_protocol.outcome(warden_protocol.error(line))


@pytest.mark.parametrize("packet", [b"{}", b'{"ok": 1}', b'{"error": []}', b"x"])
def test_what_is_no_answer(packet: bytes) -> None:
    with pytest.raises(warden_protocol.Refused):
        warden_protocol.outcome(packet)


@contextmanager
def warden(path: Path, *answers: bytes | None, late: float = 0) -> Iterator[None]:
    """Answers each connection with the next of its packets; None is to hang up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as ear:
        served = threading.Timer(late, _serve, (ear, path, answers))
        served.start()
        yield
        served.join()


def _serve(ear: socket.socket, path: Path, answers: tuple[bytes | None, ...]) -> None:
    ear.bind(str(path))
    ear.listen()
    for answer in answers:
        connection, _ = ear.accept()
        with connection:
            connection.recv(4096)
            if answer is not None:
                connection.send(answer)


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("late", [0, 0.3])
def test_a_call_survives_a_warden_that_is_started_again(tmp_path: Path, lost: int, late: float) -> None:
    with warden(tmp_path / "s", *[None] * lost, warden_protocol.ok({"a": 1}), late=late):
        assert warden_protocol.call(tmp_path / "s", Usage(), 5) == {"a": 1}


def test_a_refusal_is_not_asked_for_again(tmp_path: Path) -> None:
    with warden(tmp_path / "s", warden_protocol.error("no")), pytest.raises(warden_protocol.Refused, match="no"):
        warden_protocol.call(tmp_path / "s", Usage(), 5)


@pytest.mark.parametrize("there", ["nothing", "no listener", "silence"])
def test_the_limit(tmp_path: Path, there: str) -> None:
    path = tmp_path / "s"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if there != "nothing":
        server.bind(str(path))
    if there == "silence":
        server.listen()
    started = time.monotonic()
    with pytest.raises(MoorageError, match=r"did not answer `usage` for 0\.5 s .*journalctl"):
        warden_protocol.call(path, Usage(), 0.5)
    assert 0.3 <= time.monotonic() - started < 2
    server.close()
