"""The lock of a job: whoever holds it answers for the job on this node.

The Prolog holds it, then the warden until its unit is stopped, then the Epilog. A lock belongs to an open file and not
to a process, so systemd, which has the warden's descriptor, keeps the lock while a killed warden is started again. The
warden has none itself: it may have to wait inside the kernel for something of a user's, and hang on to all that it has.
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
    """Somebody else answers for the job."""


class Lock:
    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def remove(self) -> None:
        """The last thing of a job to go; whoever waits for it meanwhile will see that, and make a new one."""
        self.path.unlink(missing_ok=True)
        self.release()

    def leave(self) -> None:
        """To whoever else has a descriptor of the same open file, and with it the lock."""
        os.close(self.descriptor)
        self.descriptor = -1

    def release(self) -> None:
        """For all who share the open file; once is enough, more does no harm."""
        if self.descriptor >= 0:
            flock.unlock(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1


@contextmanager
def locked(job: int, limit: float = 0) -> Iterator[Lock]:
    """Hold the job's lock; Busy if somebody else has it for longer than the limit."""
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
            raise Busy(f"job {job} is held by another process for more than {limit:g} s: see `fuser {lock_file(job)}`")
        time.sleep(min(RETRY, deadline.left))


@contextmanager
def awaited(job: int) -> Iterator[None]:
    """Say in the lock's file that this process is to have it next: until then it may be free, and the job is not."""
    _note(job, json.dumps(Process.current().as_dict()))
    try:
        yield
    finally:
        _note(job, "")


def heir(job: int) -> Process | None:
    """Who has said so."""
    try:
        return Process(**json.loads(private(lock_file(job))))
    except (OSError, ValueError, TypeError):
        return None


def inherited(job: int, descriptor: int) -> Lock:
    """The lock that an earlier warden of this job held; a Busy if this descriptor is none."""
    path = lock_file(job)
    if not _is(path, descriptor) or not flock.try_lock(descriptor):
        raise Busy(f"descriptor {descriptor} does not hold the lock of job {job}")
    return Lock(path, descriptor)


def lock_file(job: int) -> Path:
    return state_file(job).with_suffix(".lock")


def _attempt(path: Path) -> Lock | None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = flock.open_file(path)
    # Between the opening and the lock, the one before may have removed the file: its lock would guard nothing.
    if flock.try_lock(descriptor) and _is(path, descriptor):
        return Lock(path, descriptor)
    os.close(descriptor)
    return None


def _note(job: int, text: str) -> None:
    # Users can fill the disk, and nothing goes wrong without.
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
