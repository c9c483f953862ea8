"""The lab's own tools in a cached Debian 13 tree, so that every host builds and boots with the same versions."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import Completed, run

from . import mirror
from .cache import CACHE, cached
from .progress import phase

SUITE = "trixie"
GO_TOOLCHAIN = "go1.26.8"
PACKAGES = (
    "apt", "bc", "bison", "ca-certificates", "containerd", "debian-archive-keyring", "e2fsprogs", "flex", "gcc", "git",
    "golang-go", "iproute2", "kmod", "libc6-dev", "make", "mmdebstrap", "openssh-client", "python3", "qemu-system-x86",
    "qemu-utils", "runc", "seabios", "xz-utils", "zstd",
)  # fmt: skip
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENTER = Path(__file__).with_name("enter-root")
HOUR = 3600.0


def inside(root: Path, argv: Sequence[str], *, cwd: Path = Path("/"), binds: Sequence[Path] = ()) -> list[str]:
    """The command line that runs `argv` in the tree `root`; the process keeps its pid all the way down."""
    places = [str(path) for path in (CACHE, *binds)]
    return [str(ENTER), str(root), str(cwd), *places, "--", *argv]


@dataclass(frozen=True)
class Tools:
    """Commands of the tools tree."""

    root: Path

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path = Path("/"),
        env: Mapping[str, str] | None = None,
        binds: Sequence[Path] = (),
        limit: float = HOUR,
        log: Path | None = None,
    ) -> Completed:
        environment = (
            {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8"} | mirror.network_environment() | dict(env or {})
        )
        return run(inside(self.root, argv, cwd=cwd, binds=binds), env=environment, limit=limit, log=log)

    def go_environment(self) -> dict[str, str]:
        shared = CACHE / "go"
        return mirror.go_environment() | {
            "GOTOOLCHAIN": GO_TOOLCHAIN,
            "GOMODCACHE": str(shared / "mod"),
            "GOCACHE": str(shared / "build"),
            "GOFLAGS": "-modcacherw",
        }


@functools.cache
def tools() -> Tools:
    return Tools(cached("tools", (SUITE, *PACKAGES), _build))


def _build(place: Path) -> None:
    with phase("making the tools tree (Debian 13: QEMU, Go, containerd)"):
        bootstrap(SUITE, place, PACKAGES, log=place.with_suffix(".log"))


def bootstrap(suite: str, place: Path, packages: Sequence[str], *, log: Path) -> None:
    """A minimal Debian tree at `place`, made with the host's mmdebstrap from the host's configured archive."""
    options = [f"--aptopt={option}" for option in mirror.apt_options()]
    run(
        ["mmdebstrap", "--mode=root", "--variant=minbase", *options, f"--include={','.join(packages)}",
         suite, str(place), mirror.debian_mirror()],
        env={"PATH": PATH, "LC_ALL": "C.UTF-8"} | mirror.network_environment(), limit=HOUR, log=log,
    )  # fmt: skip
