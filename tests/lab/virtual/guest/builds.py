"""Everything a lab is built from, and the right to use a lab's directory."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from moorage.common.errors import UserError

from ..build.cache import CACHE
from ..build.guest import guest
from ..build.payload import payload
from ..build.progress import phase, say
from ..build.registry_tree import registry_tree
from ..build.tools import tools
from ..build.uml_kernel import uml_kernel
from . import acceleration, cluster
from .cluster import Cluster
from .record import Request

DISK_FOR_A_BUILD = 20 << 30


def build(suite: str, *, refresh: bool = False) -> None:
    """The guests' image and what they carry, at the same time: one waits for packages, the other for compilers."""
    check_disk()
    with phase(f"building the lab for Debian {suite}"):
        tools()
        with ThreadPoolExecutor(3) as pool:
            # While the others wait for the network.
            compiled = pool.submit(uml_kernel) if acceleration.uml_likely() else None
            carried = pool.submit(payload)
            # For native tests, which have no network.
            kept = pool.submit(registry_tree)
            built = guest(suite, lambda: carried.result().archive, refresh=refresh)
            kept.result()
            if compiled:
                compiled.result()
    found = ", ".join(f"{name} {version}" for name, version in built.versions.items())
    note(f"Debian {suite} as of {built.built}: {found}")


def note(text: str) -> None:
    """Said here, and kept with what is measured, if anything is."""
    say(text)
    if kept_in := os.environ.get("MOORAGE_FIGURES"):
        with Path(kept_in).open("a") as file:
            file.write(json.dumps({"note": text}) + "\n")


def check_disk() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(CACHE).free
    if free < DISK_FOR_A_BUILD and not any(CACHE.glob("payload-*")):
        raise UserError(
            f"{CACHE} has {free >> 30} GB free, the lab needs {DISK_FOR_A_BUILD >> 30} GB",
            "make room, or name another place in MOORAGE_CACHE",
        )


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """One command at a time starts guests in a directory."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(f".{directory.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another command uses {directory}", "wait for it, or choose another --directory") from None
        yield


def not_up(directory: Path) -> None:
    if cluster.is_up(directory):
        raise UserError(f"a lab is up in {directory}", "end it with `lab down`, or choose another --directory")


@contextmanager
def own(directory: Path, request: Request) -> Iterator[Cluster]:
    """Guests that end with the `with` block, and with this process if it is killed."""
    not_up(directory)
    lab = cluster.prepare(directory, request)
    try:
        lab.start(with_parent=True)
        kernel = lab.first.shell.output("uname", "-r")
        note(f"{request.nodes} guest(s) of {request.suite} with Linux {kernel} {lab.hardware.acceleration}")
        yield lab
    finally:
        lab.stop()
