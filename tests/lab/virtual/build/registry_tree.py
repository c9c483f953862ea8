"""Debian's registry of images, for native tests: unpacked with the libraries that it loads, and not installed."""

from __future__ import annotations

from pathlib import Path

from . import mirror
from .cache import cached
from .progress import phase
from .tools import SUITE, tools

PACKAGES = ("docker-registry",)


def registry_tree() -> Path:
    return cached("registry", (SUITE, *PACKAGES), _build) / "root"


def _build(place: Path) -> None:
    options = [f"--aptopt={option}" for option in mirror.apt_options()]
    with phase("unpacking Debian's registry of images"):
        tools().run(
            ["mmdebstrap", "--mode=root", "--variant=extract", *options, f"--include={','.join(PACKAGES)}",
             SUITE, str(place / "root"), mirror.debian_mirror()],
            env={"DEBIAN_FRONTEND": "noninteractive"}, log=place.with_suffix(".log"),
        )  # fmt: skip
