"""Slurm's cgroups of a job: which task a process is, and how a tree of them is asked, ended and removed.

Nothing here goes by a path below a tree that was a user's: their names may add up to more than a path can hold, so
such a tree is walked by descriptor, one directory at a time. Nobody can rename a cgroup, so ".." leads back.
"""

from __future__ import annotations

import errno
import os
import re
import select
import signal
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.linux.process import name, read, running

ROOT: Final = Path("/sys/fs/cgroup")
# Preceded by the node's name where a node runs several slurmd.
SCOPE: Final = "slurmstepd.scope"
_STEP: Final = re.compile(r"step_(batch|interactive|[0-9]+)")
_TASK: Final = re.compile(r"task_[0-9]+")

# Who has not ended so long after a kill may have been passed over.
ROUND: Final = 0.5
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoTask(MoorageError):
    """The process is no task of this job."""


class Stuck(MoorageError):
    """Some processes did not end, although they were killed."""

    def __init__(self, tree: Path, pids: list[int]) -> None:
        shown = ", ".join(f"{pid} ({name(pid)})" for pid in pids[:5])
        super().__init__(f"{tree} still holds {len(pids)} killed processes, which hang in the kernel: {shown}")
        self.pids = pids


@dataclass(frozen=True)
class Leaf:
    """Where Slurm keeps one task: <scope>/<job>/<step>/user/<task>."""

    path: Path

    @property
    def user(self) -> Path:
        return self.path.parent

    @property
    def step(self) -> Path:
        return self.path.parents[1]

    @property
    def job(self) -> Path:
        return self.path.parents[2]

    @property
    def chain(self) -> list[Path]:
        """From the scope down to the task."""
        return [*reversed(self.path.parents[:4]), self.path]


def leaf(path: str, names: Container[str]) -> Leaf:
    """The task that a cgroup of this path, counted from the root, is in a job of these names."""
    parts = path.split("/")
    # Of another cgroup namespace's processes the kernel says where they are in terms of "..".
    if len(parts) < 6 or ".." in parts:
        raise NoTask(f"{path!r} is no task of this job")
    scope, job, step, user, task = parts[-5:]
    known = scope.endswith(SCOPE) and job in names and user == "user"
    if not (known and _STEP.fullmatch(step) and _TASK.fullmatch(task)):
        raise NoTask(f"{path!r} is no task of this job")
    return Leaf(ROOT.joinpath(*parts[1:]))


def leaf_of(pid: int, names: Container[str]) -> Leaf:
    """The task that this process belongs to; only root can have made what counts as one."""
    found = leaf(_path_of(pid), names)
    for directory in found.chain:
        if directory.lstat().st_uid != 0:
            raise NoTask(f"{directory} was not made by Slurm")
    return found


def holds(directory: Path, pid: int) -> bool:
    """Whether this process is in the cgroup or below it."""
    return Path(f"{ROOT}{_path_of(pid)}").is_relative_to(directory)


def _path_of(pid: int) -> str:
    # Users name cgroups; of all that Python takes for the end of a line the kernel refuses them this one alone.
    for line in read(pid, "cgroup").split("\n"):
        if line.startswith("0::"):
            return line[3:]
    raise NoTask(f"process {pid} is in no cgroup of version 2")


def put(file: Path, value: object) -> None:
    """Write one value into one of the kernel's files, which has to be there."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def number(file: Path) -> int | None:
    """What the file says; None where it says `max`, or is not there because this kernel or cgroup does not have it."""
    with suppress(FileNotFoundError, ValueError):
        return int(file.read_text())
    return None


def kill(tree: Path, deadline: Deadline) -> None:
    """End every process at and below `tree`; Stuck if some are still there at the deadline."""
    with suppress(FileNotFoundError):
        put(tree / "cgroup.kill", 1)
        while not _await(tree, "populated 0", deadline.within(ROUND)):
            if deadline.passed:
                raise Stuck(tree, tasks(tree))
            _kill_each(tree)


def _kill_each(tree: Path) -> None:
    """The kernel passes over those whose first thread has ended (seen on 6.18); frozen, they have no more children.

    The warden may signal nobody: it leaves them to the Epilog, frozen.
    """
    put(tree / "cgroup.freeze", 1)
    for pid in processes(tree):
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)
            try:
                # Else the number is another one's by now.
                if holds(tree, pid) and running(descriptor):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)


def _await(tree: Path, event: str, deadline: Deadline) -> bool:
    """Whether cgroup.events says so before the deadline; a cgroup that is gone has nothing more to say."""
    with suppress(FileNotFoundError), (tree / "cgroup.events").open("rb", buffering=0) as events:
        changes = select.poll()
        changes.register(events, select.POLLPRI)
        while event not in _lines(events.fileno()):
            if deadline.passed:
                return False
            changes.poll(deadline.left * 1000)
    return True


def _lines(descriptor: int) -> list[str]:
    try:
        return os.pread(descriptor, 4096, 0).decode().splitlines()
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        raise FileNotFoundError("the cgroup was removed") from error


def populated(tree: Path) -> bool:
    """Whether anything of somebody's lives at or below `tree`, also where no list has it any more."""
    with suppress(FileNotFoundError), (tree / "cgroup.events").open("rb", buffering=0) as events:
        return "populated 1" in _lines(events.fileno())
    return False


def processes(tree: Path) -> list[int]:
    """The processes at and below `tree`."""
    return _listed(tree, "cgroup.procs")


def threads(tree: Path) -> list[int]:
    """Each thread of these processes, also of one whose first thread has ended: that one no other list has."""
    return _listed(tree, "cgroup.threads")


def tasks(tree: Path) -> list[int]:
    """The processes, or if none is to be seen the threads that keep the tree alive."""
    return processes(tree) or threads(tree)


def _listed(tree: Path, listing: str) -> list[int]:
    found: list[int] = []
    with suppress(FileNotFoundError):
        _walk(tree, lambda directory: found.extend(_members(directory, listing)), lambda *_: None)
    return found


def _members(directory: int, listing: str) -> Iterator[int]:
    try:
        with open(listing, opener=lambda name, flags: os.open(name, flags, dir_fd=directory)) as file:
            yield from map(int, file.read().split())
    except OSError as error:
        # A threaded cgroup: the processes are those of the cgroup above it.
        if error.errno not in (errno.EOPNOTSUPP, errno.ENODEV):
            raise


def remove(tree: Path) -> bool:
    """Remove what holds no process of this tree, from below; whether nothing of it is left.

    Each directory becomes root's before it is looked into, so that its owner cannot make another one in there.
    """
    with suppress(FileNotFoundError):
        _walk(tree, lambda directory: os.fchown(directory, 0, 0), _remove_one)
        parent = os.open(tree.parent, _DIRECTORY)
        try:
            _remove_one(parent, tree.name)
        finally:
            os.close(parent)
    return not tree.exists()


def _remove_one(parent: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.ENOENT):
            raise


def _walk(tree: Path, enter: Callable[[int], None], leave: Callable[[int, str], None]) -> None:
    """Visit the cgroup and all below it: `enter` gets each one's descriptor, `leave` its parent's and its name."""
    here = os.open(tree, _DIRECTORY)
    names: list[str] = []
    try:
        enter(here)
        waiting = [_children(here)]
        while waiting[0] or names:
            if waiting[-1]:
                name = waiting[-1].pop()
                # One that is gone meanwhile needs no visit.
                with suppress(FileNotFoundError):
                    here = _step(here, name)
                    # From here on there is a way back, also out of a directory that is removed at this moment.
                    names.append(name)
                    waiting.append([])
                    enter(here)
                    waiting[-1] = _children(here)
            else:
                waiting.pop()
                here = _step(here, "..")
                leave(here, names.pop())
    finally:
        os.close(here)


def _step(here: int, name: str) -> int:
    there = os.open(name, _DIRECTORY, dir_fd=here)
    os.close(here)
    return there


def _children(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


@dataclass(frozen=True)
class Usage:
    """CPU time, and the most memory and processes there were at once."""

    cpu_seconds: float
    memory_peak: int
    processes: int

    @classmethod
    def of(cls, tree: Path) -> Self:
        return cls(_cpu_seconds(tree), _most(tree, "memory"), _most(tree, "pids"))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.cpu_seconds:.1f} s of CPU, {self.memory_peak >> 20} MiB, {self.processes} processes at most"


def _cpu_seconds(tree: Path) -> float:
    fields = dict(line.split() for line in (tree / "cpu.stat").read_text().splitlines())
    return int(fields["usage_usec"]) / 1e6


def _most(tree: Path, kind: str) -> int:
    """Linux before 5.19 (memory) and 6.1 (pids) knows only what there is now."""
    return number(tree / f"{kind}.peak") or number(tree / f"{kind}.current") or 0
