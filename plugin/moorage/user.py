"""The one way in which root does something as the user: a child that is his before it reads a byte he controls."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Self

from moorage.errors import MoorageError
from moorage.job import Job

LIMIT: Final = 10.0
DYING: Final = 5.0
MOST_ANSWER: Final = 1 << 20
HIGHEST_DESCRIPTOR: Final = (1 << 31) - 1

_CAPABILITIES_3: Final = 0x20080522
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Identity:
    """What the kernel knows a user by."""

    uid: int
    gid: int
    groups: tuple[int, ...]

    @classmethod
    def of(cls, job: Job) -> Self:
        """Asks the directory of users: not for a child that was forked."""
        if job.uid == 0:
            raise MoorageError("root's own jobs have no user to act as")
        return cls(job.uid, job.gid, tuple(os.getgrouplist(job.user, job.gid)))


def as_user(identity: Identity, work: Callable[[], str], limit: float = LIMIT) -> str:
    """What `work` returns when the user does it; a MoorageError if it fails, or takes longer than `limit` seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _serve(identity, work, writing)
    os.close(writing)
    try:
        answer = _read(reading, time.monotonic() + limit)
    finally:
        os.close(reading)
        status = _end(child)
    if status != 0 or answer is None:
        reason = f"not done after {limit:g} s" if answer is None else answer or f"ended with status {status}"
        raise MoorageError(f"as user {identity.uid}: {reason}")
    return answer


def become(identity: Identity, keep: int = -1) -> None:
    """Turn this process into the user's for good, with the standard streams and `keep` as its only descriptors."""
    os.setsid()
    os.umask(0o077)
    os.chdir("/")
    os.environ.clear()
    _close_all_but(keep)
    # Afterwards the file is root's, and slurmd hands down -1000: what the user starts could not be killed for memory.
    Path("/proc/self/oom_score_adj").write_text("0")
    os.setgroups(identity.groups)
    os.setresgid(identity.gid, identity.gid, identity.gid)
    os.setresuid(identity.uid, identity.uid, identity.uid)
    _drop_capabilities()
    if os.getresuid() != (identity.uid,) * 3 or os.getresgid() != (identity.gid,) * 3:
        raise MoorageError(f"could not become user {identity.uid}")


def _serve(identity: Identity, work: Callable[[], str], answer: int) -> NoReturn:
    code = 1
    try:
        become(identity, answer)
        _write(answer, work())
        code = 0
    except BaseException as error:
        with suppress(OSError):
            _write(answer, f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def _close_all_but(keep: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    os.closerange(3, max(keep, 3))
    os.closerange(max(keep, 2) + 1, HIGHEST_DESCRIPTOR)


def _drop_capabilities() -> None:
    """All sets: changing the user leaves the inheritable one, and under some secure bits the others as well."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()))


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _write(descriptor: int, text: str) -> None:
    left = text.encode(errors="replace")
    while left:
        left = left[os.write(descriptor, left) :]


def _read(descriptor: int, deadline: float) -> str | None:
    """All that was written, or None if the time ran out before the other end was closed."""
    answer = bytearray()
    while len(answer) <= MOST_ANSWER:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return answer.decode(errors="replace")
        answer += chunk
    return None


def _end(child: int) -> int:
    """End the child and its session; it is waited for only as long as a killed process may need."""
    handle = os.pidfd_open(child)
    try:
        # It may not have had the time to make a session.
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not select.select([handle], [], [], DYING)[0]:
            # It hangs in the kernel, in a file system of the user's perhaps; init will collect it.
            return -signal.SIGKILL
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
