"""The lock of a job: its holder answers for the job on this node.

The Prolog holds it, then the warden until its unit is stopped, then the Epilog. A lock belongs to an open file and not
to a process. So systemd's descriptor store, which has the warden's descriptor, keeps the lock while a killed warden is
started again. The warden itself keeps no descriptor: it may hang in the kernel because of a user, and would then keep
the lock.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.files import private
from moorage.common.job import state_file
from moorage.linux import flock
from moorage.linux.process import Process

RETRY: Final = 0.02


class Busy(MoorageError):
    """Another process answers for the job."""


class Lock:
    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def remove(self) -> None:
        """Remove the file of the lock, last of all. A process that waits for the lock notices, and makes a new file."""
        self.path.unlink(missing_ok=True)
        self.release()

    def leave(self) -> None:
        """Close the descriptor. The lock stays with other descriptors of the same open file."""
        os.close(self.descriptor)
        self.descriptor = -1

    def release(self) -> None:
        """Unlock the open file for all that share it. This can be repeated."""
        if self.descriptor >= 0:
            flock.unlock(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1


@contextmanager
def locked(job: int, limit: float = 0) -> Iterator[Lock]:
    """Hold the job's lock; Busy if another process has it for longer than the limit."""
    lock = take(job, limit)
    try:
        yield lock
    finally:
        lock.release()


def take(job: int, limit: float) -> Lock:
    deadline = Deadline(limit)
    while True:
        if lock := _attempt(lock_file(job)):
            return lock
        if deadline.passed:
            raise Busy(
                f"job {job} is held by another process for more than {limit:g} s: see `fuser {lock_file(job)}`",
                code="M-LEFT-8",
            )
        time.sleep(min(RETRY, deadline.left))


@contextmanager
def awaited(job: int) -> Iterator[None]:
    """Name this process in the lock's file as the next holder: meanwhile the lock may be free, but the job is not."""
    _note(job, json.dumps(Process.current().as_dict()))
    try:
        yield
    finally:
        _note(job, "")


def heir(job: int) -> Process | None:
    """The process that has named itself as the next holder."""
    try:
        return Process(**json.loads(private(lock_file(job))))
    except (OSError, ValueError, TypeError):
        return None


def inherited(job: int, descriptor: int) -> Lock:
    """The lock that an earlier warden of this job held; Busy if this descriptor does not hold it."""
    path = lock_file(job)
    if not _is(path, descriptor) or not flock.try_lock(descriptor):
        raise Busy(f"descriptor {descriptor} does not hold the lock of job {job}")
    return Lock(path, descriptor)


def lock_file(job: int) -> Path:
    return state_file(job).with_suffix(".lock")


def _attempt(path: Path) -> Lock | None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = flock.open_file(path)
    # Before it was locked, the holder may have removed this file: then the lock would protect nothing.
    if flock.try_lock(descriptor) and _is(path, descriptor):
        return Lock(path, descriptor)
    os.close(descriptor)
    return None


def _note(job: int, text: str) -> None:
    # Users can fill the disk. The note is not essential.
    with suppress(OSError):
        descriptor = os.open(lock_file(job), os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
