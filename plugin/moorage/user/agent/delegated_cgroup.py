"""The delegated cgroup, as the job's owner uses it."""

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
# Containers need these controllers for limits of their own, and Kubernetes does not start without them.
NEEDED: Final = frozenset({"cpu", "memory", "pids"})
# A killed process that has not ended by then, and is not runnable, waits in the kernel for something else.
LINGERING: Final = 3.0


def enter(cgroup: Path) -> None:
    """Move this process into the cgroup; it cannot go back."""
    try:
        (cgroup / INIT / "cgroup.procs").write_text("0")
    except OSError as error:
        raise MoorageError(f"cannot enter {cgroup / INIT}: {error.strerror}") from error


def prove(cgroup: Path) -> None:
    """Make a cgroup and move a process into it, as the runtime does for a container, and raise if that fails.

    The runtime itself reports nothing if it fails.
    """
    probe = cgroup / PROBE
    try:
        probe.mkdir()
        with _idle_child() as child:
            (probe / "cgroup.procs").write_text(str(child))
        there = set((probe / "cgroup.controllers").read_text().split())
    except OSError as error:
        raise MoorageError(
            f"a container cannot have a cgroup of its own in {cgroup}: {error}", code="M-JOB-17"
        ) from error
    finally:
        with suppress(OSError):
            probe.rmdir()
    if missing := NEEDED - there:
        raise MoorageError(f"cgroups in {cgroup} lack the controllers {', '.join(sorted(missing))}", code="M-JOB-18")


def members(cgroup: Path) -> set[int]:
    """Every process in the cgroup and below it."""
    found: set[int] = set()
    for directory, _, _ in os.walk(cgroup):
        found |= _processes(Path(directory))
    return found


def astray(cgroup: Path) -> set[int]:
    """The processes of containers that are in Podman's own cgroup, where a runtime that fails leaves them."""
    return _containers(cgroup) & _processes(cgroup / INIT)


def ask(cgroup: Path, deadline: Deadline) -> None:
    """Ask containers to end by themselves: they may be writing to files that outlive the job."""
    with ExitStack() as handles:
        asked = {pid for pid in _containers(cgroup) if _catches(pid, signal.SIGTERM)}
        _all_readable(_signalled(cgroup, asked, signal.SIGTERM, handles), deadline)


def end(cgroup: Path, spared: set[int], deadline: Deadline) -> bool:
    """Kill all processes but the spared ones; False if some are still there at the deadline, or hang in the kernel.

    A process hangs in a file system whose server never answers, for example. Root can do more about it than the user.
    """
    while others := members(cgroup) - spared:
        with ExitStack() as handles:
            _all_readable(_signalled(cgroup, others, signal.SIGKILL, handles), deadline.within(LINGERING))
        left = members(cgroup) - spared
        if deadline.passed or (left and left <= others and all(map(_hangs, left))):
            return not left
    return True


def clear(cgroup: Path) -> None:
    """Remove the empty cgroups below it that belong to the user."""
    for directory, _, _ in os.walk(cgroup, topdown=False):
        if Path(directory) not in (cgroup, cgroup / INIT):
            with suppress(OSError):
                Path(directory).rmdir()


def _signalled(cgroup: Path, pids: set[int], number: int, handles: ExitStack) -> list[int]:
    """Signal these processes; return a handle of each, which can be read once the process has ended."""
    held = {pid: handle for pid in pids if (handle := _handle(pid, handles)) is not None}
    # Until a process was held, its number may have become another process's, but not since then. So a number that is in
    # the cgroup now belongs to the held process, unless that has ended.
    there = held.keys() & members(cgroup)
    for pid in there:
        # A setuid program may be root's.
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
def _idle_child() -> Iterator[int]:
    """A process that does nothing; it ends with the block."""
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


def _containers(cgroup: Path) -> set[int]:
    """The first process of each container: the child of the monitor that Podman starts for it."""
    monitors = (pid for pid in _processes(cgroup / INIT) if _name(pid) == "conmon")
    return {child for monitor in monitors for child in _children(monitor)}


def _catches(pid: int, number: int) -> bool:
    """Whether the process handles the signal; a container's first process ignores signals without a handler."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) & 1 << (number - 1))
    return False


def _hangs(pid: int) -> bool:
    """Whether the process waits uninterruptibly, or its first thread has ended and others wait so."""
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
