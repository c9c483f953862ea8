"""The delegated part of the job's cgroup, as its owner uses it."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.linux.process import read

INIT: Final = "init"
PROBE: Final = "probe"
# What must be there for a container to have limits of its own, and for Kubernetes to start at all.
NEEDED: Final = frozenset({"cpu", "memory", "pids"})
# A killed process that has not ended by then, and does not run either, waits in the kernel for something else.
LINGERING: Final = 3.0


def enter(tree: Path) -> None:
    """Move this process in; where it came from it cannot go back to."""
    try:
        (tree / INIT / "cgroup.procs").write_text("0")
    except OSError as error:
        raise MoorageError(f"cannot enter {tree / INIT}: {error.strerror}") from error


def prove(tree: Path) -> None:
    """Do what the runtime does for a container, for it says nothing if it fails: a cgroup beside our own, entered."""
    probe = tree / PROBE
    try:
        probe.mkdir()
        with _bystander() as child:
            (probe / "cgroup.procs").write_text(str(child))
        there = set((probe / "cgroup.controllers").read_text().split())
    except OSError as error:
        raise MoorageError(f"a container cannot have a cgroup of its own in {tree}: {error}") from error
    finally:
        with suppress(OSError):
            probe.rmdir()
    if missing := NEEDED - there:
        raise MoorageError(f"cgroups in {tree} lack the controllers {', '.join(sorted(missing))}")


def members(tree: Path) -> set[int]:
    """Every process in the tree."""
    found: set[int] = set()
    for directory, _, _ in os.walk(tree):
        found |= _processes(Path(directory))
    return found


def astray(tree: Path) -> set[int]:
    """What belongs to containers and is in Podman's own cgroup: for good, if the runtime has failed to move it."""
    return _containers(tree) & _processes(tree / INIT)


def ask(tree: Path, deadline: Deadline) -> None:
    """Let containers end by themselves: they may be writing to files that the job does not take with it."""
    with ExitStack() as handles:
        asked = {pid for pid in _containers(tree) if _catches(pid, signal.SIGTERM)}
        _all_readable(_signalled(tree, asked, signal.SIGTERM, handles), deadline)


def end(tree: Path, spared: set[int], deadline: Deadline) -> bool:
    """Kill all but the spared; False if some are still there at the deadline, or hang where no signal reaches them.

    For those who hang, in a file system whose server never answers say, the node's root has means that we have not.
    """
    while others := members(tree) - spared:
        with ExitStack() as handles:
            _all_readable(_signalled(tree, others, signal.SIGKILL, handles), deadline.within(LINGERING))
        left = members(tree) - spared
        if deadline.passed or (left and left <= others and all(map(_hangs, left))):
            return not left
    return True


def clear(tree: Path) -> None:
    """Remove the cgroups in the tree that are our own and empty."""
    for directory, _, _ in os.walk(tree, topdown=False):
        if Path(directory) not in (tree, tree / INIT):
            with suppress(OSError):
                Path(directory).rmdir()


def _signalled(tree: Path, pids: set[int], number: int, handles: ExitStack) -> list[int]:
    """A handle of each that was signalled, which can be read once that has ended."""
    held = {pid: handle for pid in pids if (handle := _handle(pid, handles)) is not None}
    # A number may have become another process's until it was held, but not since: what is in the tree now is what is
    # held, or what is held has ended.
    there = held.keys() & members(tree)
    for pid in there:
        # One that runs with its program's owner's rights may be root's.
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(held[pid], number)
    return [held[pid] for pid in there]


def _handle(pid: int, handles: ExitStack) -> int | None:
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        handles.callback(os.close, handle)
        return handle
    return None


def _all_readable(handles: list[int], deadline: Deadline) -> None:
    waiting = select.poll()
    for handle in handles:
        waiting.register(handle, select.POLLIN)
    left = len(handles)
    while left and not deadline.passed:
        for handle, _ in waiting.poll(deadline.left * 1000):
            waiting.unregister(handle)
            left -= 1


@contextmanager
def _bystander() -> Iterator[int]:
    """A process that does nothing, and is gone afterwards."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        yield child
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def _processes(directory: Path) -> set[int]:
    with suppress(OSError):
        return set(map(int, (directory / "cgroup.procs").read_text().split()))
    return set()


def _containers(tree: Path) -> set[int]:
    """The first process of each container: Podman leaves a monitor with every one that runs."""
    monitors = (pid for pid in _processes(tree / INIT) if _name(pid) == "conmon")
    return {child for monitor in monitors for child in _children(monitor)}


def _catches(pid: int, number: int) -> bool:
    """A container's first process is not ended by a signal that it has no handler for."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) & 1 << (number - 1))
    return False


def _hangs(pid: int) -> bool:
    """Waits uninterruptibly, or has threads that do after its first has ended."""
    with suppress(ProcessLookupError):
        return read(pid, "stat").rpartition(")")[2].split()[0] in ("D", "Z")
    return False


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _children(pid: int) -> set[int]:
    with suppress(OSError):
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return set()
