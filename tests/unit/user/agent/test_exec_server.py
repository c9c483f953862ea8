"""What a caller of the keeper may ask."""

from __future__ import annotations

import pytest

from moorage.common.errors import MoorageError
from moorage.user.agent import exec_client
from moorage.user.agent.exec_server import Request


def body(program: bytes, argv: list[bytes], environ: list[bytes], umask: int = 0o22) -> bytes:
    packet = exec_client.request(program, argv, environ, umask)
    assert int.from_bytes(packet[: exec_client.LENGTH], "big") == len(packet) - exec_client.LENGTH
    return packet[exec_client.LENGTH :]


@pytest.mark.parametrize(
    ("argv", "environ", "variables"),
    [
        ([b"podman"], [], {}),
        ([b"podman", b"run", b"", b"a b", b"--"], [b"A=1", b"B=", b"C=x=y"], {"A": "1", "B": "", "C": "x=y"}),
        ([b"podman", b"\xff\n"], [b"A=\xff\n"], {"A": "\udcff\n"}),
        ([b"x"] * 5000, [b"%d=x" % number for number in range(5000)], {str(number): "x" for number in range(5000)}),
    ],
    ids=["least", "odd", "bytes", "many"],
)
def test_arrives_as_it_was(argv: list[bytes], environ: list[bytes], variables: dict[str, str]) -> None:
    request = Request.of(body(b"/usr/bin/podman", argv, environ))
    assert [word.encode(errors="surrogateescape") for word in request.argv] == argv
    assert (request.program, request.environ, request.umask) == ("/usr/bin/podman", variables, 0o22)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"exec",
        b"exec\0/bin/sh",
        b"exec\0/bin/sh\0x\0001\0sh",
        b"exec\0/bin/sh\00018\0x\0sh",
        b"exec\0/bin/sh\00018\0002\0sh",
        b"exec\0/bin/sh\00018\0000",
        b"other\0/bin/sh\00018\0001\0sh",
    ],
)
def test_is_not_understood(packet: bytes) -> None:
    with pytest.raises(MoorageError, match="not understood"):
        Request.of(packet)
