"""Events that break a node: units fail, clocks are lost, jobs leave things behind. Each is undone after its block.

Guests run this as root with nothing but Python, like the changes.
"""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.faults.changes import PLAIN, Twist, away, run
from support.faults.hooks import EPILOG, JOB, PROLOG, hook

LONG_AGO = 1e9
SLURMD = "*.slice/slurmd.service/cgroup.procs"


@contextmanager
def unloaded(module: str) -> Iterator[Twist]:
    """The kernel has not loaded this module."""
    run("modprobe", "--remove", module)
    try:
        yield PLAIN
    finally:
        run("modprobe", module)


@contextmanager
def newer(path: Path) -> Iterator[Twist]:
    """The file looks as if it had just been written."""
    status = path.stat()
    os.utime(path)
    try:
        yield PLAIN
    finally:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@contextmanager
def failed(unit: str, program: Path) -> Iterator[Twist]:
    """The unit was started while its program was away."""
    with away(program):
        subprocess.run(["systemctl", "start", unit], stderr=subprocess.DEVNULL, check=False)
    try:
        yield PLAIN
    finally:
        run("systemctl", "reset-failed", unit)


@contextmanager
def stopped(unit: str) -> Iterator[Twist]:
    run("systemctl", "stop", unit)
    try:
        yield PLAIN
    finally:
        run("systemctl", "start", unit)


@contextmanager
def mounted(place: Path) -> Iterator[Twist]:
    """A file system on a directory of its own."""
    place.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64k,mode=711", "tmpfs", str(place))
    try:
        yield PLAIN
    finally:
        run("umount", str(place))
        place.rmdir()


@contextmanager
def routed(network: str) -> Iterator[Twist]:
    run("ip", "route", "add", network, "dev", "lo")
    try:
        yield PLAIN
    finally:
        run("ip", "route", "delete", network, "dev", "lo")


@contextmanager
def overlaid(place: Path) -> Iterator[Twist]:
    """The same files, on an overlay."""
    aside = place.parent / ".overlaid"
    upper, work = aside / "upper", aside / "work"
    for directory in (upper, work):
        directory.mkdir(mode=0o700, parents=True)
    run("mount", "-t", "overlay", "-o", f"lowerdir={place},upperdir={upper},workdir={work}", "overlay", str(place))
    try:
        yield PLAIN
    finally:
        run("umount", str(place))
        shutil.rmtree(aside)


@contextmanager
def on_ramfs(store: Path) -> Iterator[Twist]:
    """The store on a file system that cannot map owners, without the files that only a complete check reads."""

    def passed_over(directory: str, names: list[str]) -> list[str]:
        return [name for name in names if directory.endswith("/diff") or name.endswith((".tar-split.gz", "copies"))]

    below = os.open(store, os.O_PATH)
    run("mount", "-t", "ramfs", "-o", "mode=700", "ramfs", str(store))
    try:
        there = f"/proc/self/fd/{below}/"
        shutil.copytree(there, store, symlinks=True, ignore=passed_over, dirs_exist_ok=True)
        yield PLAIN
    finally:
        run("umount", str(store))
        os.close(below)


@contextmanager
def clock_lost() -> Iterator[Twist]:
    """The clock is wrong during the block; afterwards it is as late as if nothing had been."""
    offset = time.time() - time.monotonic()
    time.clock_settime(time.CLOCK_REALTIME, LONG_AGO)
    try:
        yield PLAIN
    finally:
        time.clock_settime(time.CLOCK_REALTIME, offset + time.monotonic())


@contextmanager
def slurmd_apart() -> Iterator[Twist]:
    """A process of slurmd's has mounts of its own."""
    processes = _of_slurmd()
    argv = ["unshare", "--mount", "sh", "-c", "echo; exec sleep 600"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            processes.write_text(str(process.pid))
            yield PLAIN
        finally:
            process.kill()


@contextmanager
def limited(kind: int, most: int) -> Iterator[Twist]:
    """Every process that slurmd starts, and so every process of a job, may have no more of this."""
    processes = map(int, _of_slurmd().read_text().split())
    before = {process: resource.prlimit(process, kind, (most, most)) for process in processes}
    try:
        yield PLAIN
    finally:
        for process, limits in before.items():
            resource.prlimit(process, kind, limits)


def _of_slurmd() -> Path:
    return next(Path("/sys/fs/cgroup").glob(SLURMD))


@contextmanager
def dead_job() -> Iterator[Twist]:
    """A job was prepared, then its warden was stopped and no Epilog came."""
    code, said = hook(PROLOG)
    if code:
        raise ValueError(f"the Prolog ended with {code}: {said}")
    run("systemctl", "stop", f"moorage-warden@{JOB}.service")
    try:
        yield PLAIN
    finally:
        hook(EPILOG)
