"""Slurm's cgroups of a job: which task a process belongs to, and how a tree of cgroups is read, killed and removed.

No path is used below a cgroup that a user manages: the names may add up to more than a path can hold. Such a tree is
walked by descriptor, one directory at a time. Nobody can rename a cgroup, so ".." leads back.
"""

from __future__ import annotations

import errno
import os
import re
import select
import signal
from collections.abc import Callable, Container, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.linux.process import name, read, running

ROOT: Final = Path("/sys/fs/cgroup")
# The node's name comes before it on a node with several slurmd.
SCOPE: Final = "slurmstepd.scope"
_STEP: Final = re.compile(r"step_(batch|interactive|[0-9]+)")
_TASK: Final = re.compile(r"task_[0-9]+")

# The kernel may have passed over a process that has not ended so many seconds after a kill.
ROUND: Final = 0.5
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoTask(MoorageError):
    """The process does not belong to a task of this job."""


class Stuck(MoorageError):
    """Some processes did not end, although they were killed."""

    def __init__(self, tree: Path, pids: list[int]) -> None:
        shown = ", ".join(f"{pid} ({name(pid)})" for pid in pids[:5])
        super().__init__(f"{tree} still holds {len(pids)} killed processes, which hang in the kernel: {shown}")
        self.pids = pids


@dataclass(frozen=True)
class Leaf:
    """The cgroup that Slurm makes for one task: <scope>/<job>/<step>/user/<task>."""

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
        """All cgroups from the scope down to the task."""
        return [*reversed(self.path.parents[:4]), self.path]


def leaf(path: str, names: Container[str]) -> Leaf:
    """The task with this cgroup path, as seen from the root; NoTask if it is not of a job with these names."""
    parts = path.split("/")
    # For a process outside this cgroup namespace the kernel reports a path with "..".
    if len(parts) < 6 or ".." in parts:
        raise NoTask(f"{path!r} is no task of this job")
    scope, job, step, user, task = parts[-5:]
    known = scope.endswith(SCOPE) and job in names and user == "user"
    if not (known and _STEP.fullmatch(step) and _TASK.fullmatch(task)):
        raise NoTask(f"{path!r} is no task of this job")
    return Leaf(ROOT.joinpath(*parts[1:]))


def leaf_of(pid: int, names: Container[str]) -> Leaf:
    """The task that this process belongs to; NoTask if not all of its cgroups are root's."""
    found = leaf(_path_of(pid), names)
    for directory in found.chain:
        if directory.lstat().st_uid != 0:
            raise NoTask(f"{directory} was not made by Slurm")
    return found


def holds(directory: Path, pid: int) -> bool:
    """Whether this process is in the cgroup or below it."""
    return Path(f"{ROOT}{_path_of(pid)}").is_relative_to(directory)


def _path_of(pid: int) -> str:
    # Users choose names of cgroups. Python knows many ends of a line, and the kernel refuses only this one in a name.
    for line in read(pid, "cgroup").split("\n"):
        if line.startswith("0::"):
            return line[3:]
    raise NoTask(f"process {pid} is in no cgroup of version 2")


def put(file: Path, value: object) -> None:
    """Write one value into a file of the kernel, which must exist."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def number(file: Path) -> int | None:
    """The number in the file; None if it says `max`, or if this kernel or cgroup has no such file."""
    with suppress(FileNotFoundError, ValueError):
        return int(file.read_text())
    return None


def kill(tree: Path, deadline: Deadline) -> None:
    """Kill every process at and below `tree`; Stuck if some are still there at the deadline."""
    with suppress(FileNotFoundError):
        put(tree / "cgroup.kill", 1)
        while not _await(tree, "populated 0", deadline.within(ROUND)):
            if deadline.passed:
                raise Stuck(tree, tasks(tree))
            _kill_each(tree)


def _kill_each(tree: Path) -> None:
    """Freeze the tree, and signal each of its processes: while frozen, none can start another one.

    The kernel's own kill passes over processes whose first thread has ended (seen on 6.18). The warden has no right to
    send signals: it leaves them to the Epilog, frozen.
    """
    put(tree / "cgroup.freeze", 1)
    for pid in processes(tree):
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)
            try:
                # Otherwise the number belongs to another process by now.
                if holds(tree, pid) and running(descriptor):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)


def _await(tree: Path, event: str, deadline: Deadline) -> bool:
    """Whether cgroup.events says so before the deadline, or the cgroup is gone."""
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
    """Whether any process lives at or below `tree`, also one that no list shows any more."""
    with suppress(FileNotFoundError), (tree / "cgroup.events").open("rb", buffering=0) as events:
        return "populated 1" in _lines(events.fileno())
    return False


def processes(tree: Path) -> list[int]:
    """The processes at and below `tree`."""
    return _listed(tree, "cgroup.procs")


def threads(tree: Path) -> list[int]:
    """All threads of these processes. Only this list shows a process whose first thread has ended."""
    return _listed(tree, "cgroup.threads")


def tasks(tree: Path) -> list[int]:
    """The processes; if no list shows any, the threads that keep the tree alive."""
    return processes(tree) or threads(tree)


def _listed(tree: Path, listing: str) -> list[int]:
    found: list[int] = []
    with suppress(FileNotFoundError), closing(_walk(tree)) as cgroups:
        for parent, name in cgroups:
            found.extend(_members(parent, f"{name}/{listing}"))
    return found


def _members(parent: int, listing: str) -> Iterator[int]:
    try:
        with open(listing, opener=lambda name, flags: os.open(name, flags, dir_fd=parent)) as file:
            yield from map(int, file.read().split())
    except OSError as error:
        # A threaded cgroup has no list: its processes are those of the cgroup above. A removed one has no file.
        if error.errno not in (errno.EOPNOTSUPP, errno.ENODEV, errno.ENOENT):
            raise


def remove(tree: Path) -> bool:
    """Remove all cgroups at and below `tree` that hold no process; whether nothing is left."""
    with suppress(FileNotFoundError), closing(_walk(tree, _take_back)) as cgroups:
        for parent, name in cgroups:
            _remove_one(parent, name)
    return not tree.exists()


def _take_back(directory: int) -> None:
    """Give a cgroup to root, so that its former owner cannot make another one in it."""
    os.fchown(directory, 0, 0)


def _remove_one(parent: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.ENOENT):
            raise


def _walk(tree: Path, enter: Callable[[int], None] = lambda _: None) -> Generator[tuple[int, str], None, None]:
    """Yield each cgroup after those below it, `tree` last: the descriptor of its parent, and its name.

    `enter` gets the descriptor of each cgroup before its children are listed.
    """
    here = os.open(tree.parent, _DIRECTORY)
    # From the parent of `tree` down to `here`: the name of each directory, and its children that are not visited yet.
    levels = [("", [tree.name])]
    try:
        while True:
            name, children = levels[-1]
            if children:
                child, inner = children.pop(), list[str]()
                # A cgroup that is gone meanwhile needs no visit.
                with suppress(FileNotFoundError):
                    here = _step(here, child)
                    # From now on ".." leads back, also if `here` is removed at this moment.
                    levels.append((child, inner))
                    enter(here)
                    inner += _children(here)
            elif len(levels) > 1:
                levels.pop()
                here = _step(here, "..")
                yield here, name
            else:
                return
    finally:
        os.close(here)


def _step(here: int, name: str) -> int:
    """Open a directory by its name in `here`, which is closed."""
    there = os.open(name, _DIRECTORY, dir_fd=here)
    os.close(here)
    return there


def _children(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


@dataclass(frozen=True)
class Usage:
    """CPU time, and the highest numbers of bytes of memory and of processes at once."""

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
    """The highest value. Linux before 5.19 (memory) and 6.1 (pids) has only the present one."""
    return number(tree / f"{kind}.peak") or number(tree / f"{kind}.current") or 0
