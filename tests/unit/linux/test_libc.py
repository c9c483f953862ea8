"""System calls by ctypes: errors of the kernel become OSError, and no other module does the same."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.linux import libc
from support.coded_lines import PLUGIN

MISSING = Path("/nonexistent/place")
HOW = struct.pack("=3Q", os.O_RDONLY | os.O_DIRECTORY, 0, 0)
NO_DESCRIPTOR = 1 << 20


@pytest.mark.parametrize(
    ("call", "number"),
    [
        (lambda: libc.setns(NO_DESCRIPTOR, libc.NEW_NETWORK), errno.EBADF),
        (lambda: libc.prctl(-1, 0), errno.EINVAL),
        (lambda: libc.openat2(NO_DESCRIPTOR, "name", HOW), errno.EBADF),
        (lambda: libc.move_mount(NO_DESCRIPTOR, MISSING), None),
        (lambda: libc.quotactl(NO_DESCRIPTOR, 0, 0, bytearray(72)), None),
    ],
)
def test_an_error_is_raised(call: Callable[[], object], number: int | None) -> None:
    with pytest.raises(OSError) as raised:  # noqa: PT011 - the number is looked at
        call()
    assert raised.value.errno
    assert raised.value.strerror == os.strerror(raised.value.errno)
    assert number in (None, raised.value.errno)


def test_an_error_names_its_file() -> None:
    with pytest.raises(OSError, match=str(MISSING)):
        libc.umount(MISSING, 0)


def test_a_directory_is_opened(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    parent = os.open(tmp_path, os.O_RDONLY)
    descriptor = libc.openat2(parent, "inner", HOW)
    assert os.path.samestat(os.fstat(descriptor), (tmp_path / "inner").stat())
    with pytest.raises(FileNotFoundError):
        libc.openat2(parent, "other", HOW)
    for one in (parent, descriptor):
        os.close(one)


@pytest.mark.parametrize(("word", "place"), [("import ctypes", "linux/libc.py"), ("fcntl.flock(", "linux/flock.py")])
def test_it_is_done_in_one_module(word: str, place: str) -> None:
    assert [path for path in PLUGIN.rglob("*.py") if word in path.read_text()] == [PLUGIN / "moorage" / place]
