"""A file system that hangs: whoever touches it waits inside the kernel, where no signal reaches."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

FORCED: Final = 1
DETACHED: Final = 2

_REQUEST = struct.Struct("IIQQIIII")
_ANSWER = struct.Struct("IiQ")
_INITIALISED = struct.Struct("IIIIHHIIHH28x")
_READ_SIZE = 1 << 17
_OPEN = 14
_FLUSH = 25
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def hung_mount(place: Path, user: int = 0) -> Iterator[None]:
    """A FUSE mount of the user's whose server reads every request, so that it cannot be withdrawn, and answers none
    but the first. On a file it can be opened, and root can never close it.
    """
    server, reader = _hang(place, user)
    try:
        yield
    finally:
        _libc.umount2(os.fsencode(place), FORCED | DETACHED)
        reader.join(10)
        os.close(server)


def hang(place: Path) -> None:
    """The same of root's, for as long as this process lives."""
    _hang(place, 0)


def await_blocked(pid: int, limit: float = 10.0) -> None:
    """Until the process waits for such a server."""
    end = time.monotonic() + limit
    while Path(f"/proc/{pid}/wchan").read_text() != "request_wait_answer":
        assert time.monotonic() < end
        time.sleep(0.01)


def leave_behind(function: Callable[..., object], *words: object) -> None:
    """Have a second thread do this, and end the first: no list of processes has this one any more once it is killed."""
    threading.Thread(target=function, args=words).start()
    _libc.pthread_exit(None)


def await_left_behind(pid: int, limit: float = 10.0) -> None:
    """Until its first thread has ended, and another one has not."""
    end = time.monotonic() + limit
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) > 1


def _hang(place: Path, user: int) -> tuple[int, threading.Thread]:
    server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    root = 0o40000 if place.is_dir() else 0o100666
    options = f"fd={server},rootmode={root:o},user_id={user},group_id={user}".encode()
    if _libc.mount(b"hung", os.fsencode(place), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "no FUSE mount: load the module fuse")
    reader = threading.Thread(target=_serve, args=(server,), daemon=True)
    reader.start()
    return server, reader


def _serve(server: int) -> None:
    try:
        _, _, request, *_ = _REQUEST.unpack_from(os.read(server, _READ_SIZE))
        body = _INITIALISED.pack(7, 31, 0, 0, 0, 0, 4096, 0, 0, 0)
        os.write(server, _ANSWER.pack(_ANSWER.size + len(body), 0, request) + body)
        while True:
            _, kind, request, _, uid, *_ = _REQUEST.unpack_from(os.read(server, _READ_SIZE))
            if kind == _OPEN:
                # The kernel then opens files without asking, and asks when they are closed.
                os.write(server, _ANSWER.pack(_ANSWER.size, -errno.ENOSYS, request))
            elif kind == _FLUSH and uid:
                os.write(server, _ANSWER.pack(_ANSWER.size, 0, request))
    except OSError:
        # The mount is gone.
        return
