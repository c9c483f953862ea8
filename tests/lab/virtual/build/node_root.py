"""Debian as far as a node needs it: the node's own system, and single programs for the images inside it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from moorage.common.command import run

from . import mirror
from .cache import cached
from .progress import phase
from .tools import SUITE, tools

NODE_PACKAGES = (
    "ca-certificates", "conntrack", "iproute2", "iptables", "jq", "kmod", "libseccomp2", "mount", "nftables", "pigz",
    "procps", "runc", "systemd",
)  # fmt: skip
PROGRAM_PACKAGES = ("busybox-static", "iperf3", "iproute2", "iptables", "jq", "libc-bin", "nftables")
LOADER = "lib64/ld-linux-x86-64.so.2"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
UNWANTED = (
    "boot/*", "dev/*", "etc/systemd/system/*.wants", "proc/*", "run/*", "sys/*", "tmp/*",
    "usr/lib/systemd/catalog", "usr/lib/systemd/system-generators/*", "usr/lib/systemd/system/*.wants",
    "usr/lib/systemd/systemd-networkd*", "usr/lib/udev/hwdb.d",
    f"{LIBRARIES}/audit", f"{LIBRARIES}/gconv", f"{LIBRARIES}/perl-base", "usr/bin/perl*",
    "usr/share/bash-completion", "usr/share/bug", "usr/share/common-licenses", "usr/share/dbus-1", "usr/share/doc",
    "usr/share/fish", "usr/share/info", "usr/share/lintian", "usr/share/locale", "usr/share/man", "usr/share/perl5",
    "usr/share/polkit-1", "usr/share/zsh", "var/cache/*", "var/lib/apt", "var/lib/dpkg/info", "var/lib/systemd/catalog",
)  # fmt: skip
# All that systemd has to start in a container; every other unit or generator would cost kind's 30 s for a node's boot.
WANTED_UNITS = {
    "sockets.target": ("systemd-journald-dev-log.socket", "systemd-journald.socket"),
    "sysinit.target": ("systemd-journald.service", "systemd-sysctl.service"),
}


def node_root() -> Path:
    """The Debian tree that every node starts from."""
    inputs = (SUITE, *NODE_PACKAGES, *UNWANTED, str(WANTED_UNITS))
    return cached("node-root", inputs, _build_node_root) / "root"


def programs() -> Path:
    """Unpacked packages to take single programs from; not a system."""
    return cached("node-programs", (SUITE, *PROGRAM_PACKAGES), _build_programs) / "root"


def _build_node_root(place: Path) -> None:
    with phase("making the node image's Debian tree"):
        _bootstrap("essential", place / "root", NODE_PACKAGES)
        discard(place / "root", UNWANTED)
        keep_units(place / "root/usr/lib/systemd/system")


def _build_programs(place: Path) -> None:
    with phase("unpacking programs for the images in the node image"):
        _bootstrap("extract", place / "root", PROGRAM_PACKAGES)


def _bootstrap(variant: str, place: Path, packages: Sequence[str]) -> None:
    options = [f"--aptopt={option}" for option in mirror.apt_options()]
    left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")]
    tools().run(
        ["mmdebstrap", "--mode=root", f"--variant={variant}", *options, *left_out, f"--include={','.join(packages)}",
         SUITE, str(place), mirror.debian_mirror()],
        env={"DEBIAN_FRONTEND": "noninteractive"}, log=place.with_suffix(".log"),
    )  # fmt: skip


def discard(root: Path, patterns: Iterable[str]) -> None:
    for path in [found for pattern in patterns for found in root.glob(pattern)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def keep_units(units: Path) -> None:
    for target, names in WANTED_UNITS.items():
        wants = units / f"{target}.wants"
        wants.mkdir()
        for name in names:
            (wants / name).symlink_to(f"../{name}")
    (units / "default.target").unlink()
    (units / "default.target").symlink_to("multi-user.target")


def install_programs(target: Path, paths: Sequence[str]) -> None:
    """Put programs into an image's tree, with the shared libraries they load and the loader."""
    for path in [*paths, *_libraries(programs(), paths)]:
        copy(programs() / path, target / path)
    copy(programs() / "usr" / LOADER, target / LOADER)


def install_busybox(target: Path) -> None:
    """One static file under the names of all its commands, /bin/sh among them."""
    names = run(["chroot", programs(), "/usr/bin/busybox", "--list"]).stdout.split()
    copy(programs() / "usr/bin/busybox", target / "bin/busybox")
    for name in set(names) - {"busybox"}:
        (target / "bin" / name).symlink_to("busybox")


def copy(source: Path, target: Path) -> None:
    """A file (what a link points to), or a directory with all its files, in a place that is made for it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy(source, target)


def _libraries(root: Path, paths: Sequence[str]) -> list[str]:
    listings = [run(["chroot", root, f"/usr/{LOADER}", "--list", f"/{path}"]).stdout for path in paths]
    return sorted({library for listing in listings for library in re.findall(rf"=> /({LIBRARIES}/\S+)", listing)})
