"""The kernel of guests that run as processes of this machine: User-Mode Linux, built from Debian's source."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.common.errors import MoorageError

from . import uml_source
from .cache import Input, cached
from .progress import phase
from .tools import tools
from .uml_source import PLACE

FRAGMENT = PLACE / "fragment.config"
LIMIT = 3600.0


@dataclass(frozen=True)
class UmlKernel:
    """`linux` is the program. It has no modules: what a guest needs is built in."""

    place: Path

    @property
    def linux(self) -> Path:
        return self.place / "linux"

    @property
    def release(self) -> str:
        return (self.place / "release").read_text().strip()


def uml_kernel(*, refresh: bool = False) -> UmlKernel:
    source = uml_source.archive(refresh=refresh)
    version = (source / "version").read_text()
    inputs: tuple[Input, ...] = (version, PLACE, *map(str, uml_source.EDITS))

    def build(place: Path) -> None:
        with phase(f"compiling the UML kernel ({uml_source.PACKAGE} {version})"):
            _compile(source, place)

    return UmlKernel(cached("uml-kernel", inputs, build))


def _compile(source: Path, place: Path) -> None:
    tree = uml_source.unpack(source, place)
    log = place / "log"

    def make(*words: str, **env: str) -> str:
        jobs = f"-j{len(os.sched_getaffinity(0)) + 1}"
        return tools().run(["make", "ARCH=um", "-s", jobs, *words], cwd=tree, env=env, limit=LIMIT, log=log).stdout

    shutil.copy(FRAGMENT, tree / "lab.config")
    make("alldefconfig", KCONFIG_ALLCONFIG="lab.config")
    if missing := list(unmet(FRAGMENT.read_text(), (tree / ".config").read_text())):
        raise MoorageError(f"the kernel's configuration did not take {', '.join(missing)}: see {FRAGMENT}")
    make("linux")
    shutil.copy(tree / "linux", place / "linux")
    shutil.copy(tree / "include/config/kernel.release", place / "release")
    shutil.copy(tree / ".config", place / "config")
    shutil.rmtree(tree)


def unmet(fragment: str, config: str) -> Iterator[str]:
    """The lines of the fragment that the configuration does not have."""
    has = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", config, re.MULTILINE))
    for name, value in re.findall(r"^(CONFIG_\w+)=(.*)$", fragment, re.MULTILINE):
        if has.get(name, "n") != value:
            yield f"{name}={value}"
