"""Try to access files and sockets of others: paths on stdin, the kinds of access that succeed as JSON on stdout.

Runs in a guest as the user who tries. Nothing is changed where it succeeds.
"""
# The calls themselves are what is tried.
# ruff: noqa: PTH101, PTH108, PTH115, PTH116, PTH118, PTH208

import json
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

REQUEST = b'{"verb": "usage"}'


def read(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.listdir(descriptor)
        else:
            os.read(descriptor, 1)
    finally:
        os.close(descriptor)


def write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY))


def create(path: str) -> None:
    planted = os.path.join(path, ".stranger")
    os.close(os.open(planted, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(planted)


def enter(path: str) -> None:
    here = os.open(".", os.O_PATH)
    try:
        os.chdir(path)
    finally:
        os.fchdir(here)
        os.close(here)


def follow(path: str) -> None:
    os.readlink(path)


def give_away(path: str) -> None:
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))


def connect(path: str) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as connection:
            connection.settimeout(10)
            connection.connect(path)
            return
    raise ConnectionRefusedError


WAYS: tuple[Callable[[str], None], ...] = (read, write, create, enter, follow, give_away, connect)


def successes(path: str) -> Iterator[str]:
    for way in WAYS:
        with suppress(OSError):
            way(path)
            yield way.__name__


os.chdir("/")
print(json.dumps({path: list(successes(path)) for path in json.load(sys.stdin)}))
