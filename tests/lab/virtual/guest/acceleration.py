"""Whether a guest really boots under KVM on this machine, or must run in software emulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import CommandError, run

from ..build.cache import CACHE, cached
from ..build.tools import Tools, inside

BOOT_LIMIT = 10.0
# A processor that boasts of fast string moves gets them from glibc, Go and the kernel for every copy, and QEMU 10.0
# emulates them byte by byte.
EMULATED_CPU = "max,-erms,-fsrm"
# Without a root file system the kernel comes this far only when processor, memory and interrupts all work.
BOOTED = "Unable to mount root fs"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Acceleration:
    """How guests run, and what QEMU is told for it."""

    name: str

    def __str__(self) -> str:
        return "under KVM" if self.name == "kvm" else "in software emulation, for no guest boots under KVM here"

    def arguments(self, translation_megabytes: int) -> list[str]:
        if self.name == "kvm":
            return ["-accel", "kvm", "-cpu", "host"]
        return ["-accel", f"tcg,thread=multi,tb-size={translation_megabytes}", "-cpu", EMULATED_CPU]


def probe(tools: Tools, kernel: Path) -> Acceleration:
    """Boot the guests' kernel under KVM once per boot of this machine and believe only its own words."""

    def answer(place: Path) -> None:
        (place / "name").write_text("kvm" if _boots(tools, kernel, Acceleration("kvm")) else "tcg")

    found = cached("acceleration", (BOOT_ID.read_bytes(), str(kernel)), answer) / "name"
    return Acceleration(found.read_text())


def _boots(tools: Tools, kernel: Path, how: Acceleration) -> bool:
    if how.name == "kvm" and not Path("/dev/kvm").exists():
        return False
    try:
        return BOOTED in run(inside(tools.root, _probe_guest(kernel, how), binds=[CACHE]), limit=BOOT_LIMIT).stdout
    except CommandError:
        return False


def _probe_guest(kernel: Path, how: Acceleration) -> Sequence[str]:
    return [
        "qemu-system-x86_64", *how.arguments(64), "-m", "512", "-nographic", "-no-reboot", "-nodefaults",
        "-serial", "stdio", "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
