"""What befalls a node that nobody has changed: units fail, clocks forget, jobs leave things behind.

For use in a guest as root, like the ways to break one thing of it.
"""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.faults.changes import PLAIN, Breakage, Twist, away, run
from support.faults.hooks import EPILOG, JOB, PROLOG, hook

LONG_AGO = 1e9
SLURMD = "*.slice/slurmd.service/cgroup.procs"


def planted(path: Path | str, text: str = "") -> Breakage:
    """A file where there was none, with the directories above it."""

    @contextmanager
    def broken() -> Iterator[Twist]:
        place = Path(path)
        missing = [parent for parent in place.parents if not parent.exists()]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        try:
            yield PLAIN
        finally:
            place.unlink()
            # Whoever looked at a job has locked it.
            place.with_suffix(".lock").unlink(missing_ok=True)
            for parent in missing:
                parent.rmdir()

    return broken


def linked(path: Path | str, target: str) -> Breakage:
    @contextmanager
    def broken() -> Iterator[Twist]:
        with away(path)() as twist:
            Path(path).symlink_to(target)
            try:
                yield twist
            finally:
                Path(path).unlink()

    return broken


def newer(path: Path | str) -> Breakage:
    """As if somebody had just written it."""

    @contextmanager
    def broken() -> Iterator[Twist]:
        status = Path(path).stat()
        os.utime(path)
        try:
            yield PLAIN
        finally:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    return broken


def failed(unit: str, program: Path | str) -> Breakage:
    """The unit was started when its program could not be."""

    @contextmanager
    def broken() -> Iterator[Twist]:
        with away(program)():
            subprocess.run(["systemctl", "start", unit], stderr=subprocess.DEVNULL, check=False)
        try:
            yield PLAIN
        finally:
            run("systemctl", "reset-failed", unit)

    return broken


def stopped(unit: str) -> Breakage:
    @contextmanager
    def broken() -> Iterator[Twist]:
        run("systemctl", "stop", unit)
        try:
            yield PLAIN
        finally:
            run("systemctl", "start", unit)

    return broken


def mounted(place: Path | str) -> Breakage:
    """A file system on a directory of its own."""

    @contextmanager
    def broken() -> Iterator[Twist]:
        Path(place).mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=64k,mode=711", "tmpfs", str(place))
        try:
            yield PLAIN
        finally:
            run("umount", str(place))
            Path(place).rmdir()

    return broken


def routed(network: str) -> Breakage:
    @contextmanager
    def broken() -> Iterator[Twist]:
        run("ip", "route", "add", network, "dev", "lo")
        try:
            yield PLAIN
        finally:
            run("ip", "route", "delete", network, "dev", "lo")

    return broken


def overlaid(place: Path | str) -> Breakage:
    """The same files, on an overlay."""

    @contextmanager
    def broken() -> Iterator[Twist]:
        aside = Path(place).parent / ".overlaid"
        upper, work = aside / "upper", aside / "work"
        for directory in (upper, work):
            directory.mkdir(mode=0o700, parents=True)
        run("mount", "-t", "overlay", "-o", f"lowerdir={place},upperdir={upper},workdir={work}", "overlay", str(place))
        try:
            yield PLAIN
        finally:
            run("umount", str(place))
            shutil.rmtree(aside)

    return broken


def on_ramfs(store: Path | str) -> Breakage:
    """The store where owners cannot be mapped; of its images as much as anybody looks at who does not read them."""

    def passed_over(directory: str, names: list[str]) -> list[str]:
        return [name for name in names if directory.endswith("/diff") or name.endswith((".tar-split.gz", "copies"))]

    @contextmanager
    def broken() -> Iterator[Twist]:
        below = os.open(store, os.O_PATH)
        run("mount", "-t", "ramfs", "-o", "mode=700", "ramfs", str(store))
        try:
            there = f"/proc/self/fd/{below}/"
            shutil.copytree(there, store, symlinks=True, ignore=passed_over, dirs_exist_ok=True)
            yield PLAIN
        finally:
            run("umount", str(store))
            os.close(below)

    return broken


@contextmanager
def clock_lost() -> Iterator[Twist]:
    """For as long as somebody looks; afterwards it is as late as if nothing had been."""
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


def limited(kind: int, most: int) -> Breakage:
    """What slurmd starts, and so every process of a job, may have no more of this."""

    @contextmanager
    def broken() -> Iterator[Twist]:
        processes = map(int, _of_slurmd().read_text().split())
        before = {process: resource.prlimit(process, kind, (most, most)) for process in processes}
        try:
            yield PLAIN
        finally:
            for process, limits in before.items():
                resource.prlimit(process, kind, limits)

    return broken


def _of_slurmd() -> Path:
    return next(Path("/sys/fs/cgroup").glob(SLURMD))


@contextmanager
def dead_job() -> Iterator[Twist]:
    """A job was made ready for, then its warden was stopped and no Epilog came."""
    code, said = hook(PROLOG)
    if code:
        raise ValueError(f"the Prolog ended with {code}: {said}")
    run("systemctl", "stop", f"moorage-warden@{JOB}.service")
    try:
        yield PLAIN
    finally:
        hook(EPILOG)
