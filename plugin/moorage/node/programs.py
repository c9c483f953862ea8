"""The programs that a node must have, and their oldest versions."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.common import command
from moorage.common.command import CommandError
from moorage.node.factcache import Facts, stamp
from moorage.node.finding import Finding

# Where Podman looks for its helpers besides PATH.
HELPERS: Final = ("/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman")
VERSION_LIMIT: Final = 20.0
LONGEST_VERSION: Final = 200
MOST_BYTES: Final = 1 << 24
# 2025_05_03.587980c, or 0.0~git20250503.587980c-2 and the like, at the start of a C string.
_DATED: Final = re.compile(rb"\0((?:[0-9][!-~]{0,30})?20[0-9]{2}_?[0-9]{2}_?[0-9]{2}\.[!-~]{1,100})[\0\n]")
# Podman reads the node's storage.conf before it prints its version, and fails if that file is for users only (5.4).
UNCONFIGURED: Final = {"CONTAINERS_STORAGE_CONF": "/dev/null"}

RUNTIMES: Final = ("crun", "runc")
# The uplinks that are programs.
UPLINKS: Final = ("pasta", "slirp4netns")
VERSIONED: Final = ("podman", *RUNTIMES, *UPLINKS)
PRESENT: Final = ("conmon", "netavark", "getsubids", "newuidmap", "newgidmap")
PRIVILEGED: Final = ("newuidmap", "newgidmap")
# crun before 1.8.2 leaves a container in Podman's own cgroup and reports no error (seen with 1.8.1).
OLDEST: Final = {"podman": (4, 9), "crun": (1, 8, 2), "runc": (1, 1)}
OLDEST_PYTHON: Final = (3, 11)
OLDEST_SLURM: Final = (23, 11)

Version = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    path: Path
    version: str


def number(version: str) -> Version:
    """5.4.2 as (5, 4, 2), and pasta's dates, 2025_05_03 or git20250503, as (2025, 5, 3)."""
    if date := re.search(r"(20\d\d)_?(\d\d)_?(\d\d)", version):
        return tuple(map(int, date.groups()))
    found = re.search(r"\d+(\.\d+)+", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def shown(version: Version) -> str:
    return ".".join(map(str, version))


def find(name: str, *places: Path) -> Path | None:
    """The program; these places are searched first."""
    usual = map(Path, (*command.PATH.split(":"), *HELPERS))
    candidates = (place / name for place in (*places, *usual))
    return next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)


def version(program: Path, facts: Facts, *words: str) -> str:
    """The first line that the program prints for its version; empty if it prints none."""
    with suppress(CommandError):
        return facts.recall(f"version {program}", stamp(program), lambda: _ask(program, *(words or ("--version",))))
    return ""


def _ask(program: Path, *words: str) -> str:
    # kubectl without a HOME reads .kube/kuberc of the directory it is in, which may have it write any file (1.36).
    said = command.run([program, *words], env=UNCONFIGURED, cwd=Path("/"), limit=VERSION_LIMIT).stdout
    if not said:
        # pasta ends without flushing its output, so a pipe gets nothing (seen with 2025-05-03). Under AppArmor's
        # confinement no other way works.
        said = _written_in(program)
    return said.strip().partition("\n")[0][:LONGEST_VERSION]


def _written_in(program: Path) -> str:
    """The name and the dated version, read from the program's own file."""
    with program.open("rb") as file:
        found = _DATED.search(file.read(MOST_BYTES))
    return f"{program.name} {found[1].decode()}" if found else ""


def installed(facts: Facts) -> dict[str, Program]:
    """The programs that this node has, of those that Moorage uses."""
    found = {name: path for name in (*VERSIONED, *PRESENT) if (path := find(name))}
    return {name: Program(path, version(path, facts) if name in VERSIONED else "") for name, path in found.items()}


def runtime(there: Mapping[str, Program]) -> Program | None:
    """The first runtime that is new enough. Podman is told to use it."""
    return next((there[name] for name in RUNTIMES if name in there and not _old(name, there[name])), None)


def check(there: Mapping[str, Program]) -> Iterator[Finding]:
    yield from _podman(there)
    yield from _runtime(there)
    for name in PRESENT:
        if name not in there:
            yield Finding(
                "programs",
                f"{name} is not installed",
                f"install the package that has it ({_package(name)})",
                code="M-NODE-5",
            )
    for name in PRIVILEGED:
        if name in there and not _privileged(there[name].path):
            path = there[name].path
            yield Finding(
                "programs",
                f"{path} has no privilege to map ids",
                f"chmod u+s {path}, or install it again",
                code="M-NODE-6",
            )
    if sys.version_info[:2] < OLDEST_PYTHON:
        yield Finding(
            "python",
            f"Python is {sys.version.split()[0]}",
            f"give Moorage {shown(OLDEST_PYTHON)} or newer",
            code="M-NODE-7",
        )


def podman_does(there: Mapping[str, Program]) -> bool:
    """Whether Podman is good enough: else no check that depends on it can run."""
    return not list(_podman(there))


def slurm(said: str) -> Iterator[Finding]:
    """A finding if this version of Slurm is too old."""
    if number(said) and number(said) < OLDEST_SLURM:
        yield Finding("slurm", f"this node runs {said}", "install Slurm 23.11 or newer", code="M-SLURM-1")


def _podman(there: Mapping[str, Program]) -> Iterator[Finding]:
    if "podman" not in there:
        yield Finding("podman", "Podman is not installed", "install podman 4.9 or newer", code="M-PODMAN-2")
    elif _old("podman", there["podman"]):
        said = there["podman"].version or "silent about its version"
        yield Finding("podman", f"{there['podman'].path} is {said}", "install podman 4.9 or newer", code="M-PODMAN-3")


def _runtime(there: Mapping[str, Program]) -> Iterator[Finding]:
    if not runtime(there):
        said = ", ".join(there[name].version for name in RUNTIMES if name in there) or "no container runtime"
        yield Finding(
            "runtime", f"this node has {said}", "install crun 1.8.2 or newer, or runc 1.1 or newer", code="M-PODMAN-4"
        )


def _old(name: str, program: Program) -> bool:
    return number(program.version) < OLDEST[name]


def _privileged(path: Path) -> bool:
    if path.stat().st_mode & stat.S_ISUID:
        return True
    with suppress(OSError):
        return bool(os.getxattr(path, "security.capability"))
    return False


def _package(name: str) -> str:
    return name if name in ("conmon", "netavark") else "uidmap or shadow-utils"
