"""How the guests of a lab run on this machine: under KVM, as User-Mode Linux, or in software emulation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import CommandError, CommandFailed, run
from moorage.common.errors import UsageError, UserError

from ..build.cache import CACHE, cached
from ..build.tools import Tools, inside
from ..build.uml_kernel import uml_kernel

KVM, UML, EMULATION = "kvm", "uml", "emulation"
SETTING = "MOORAGE_ACCELERATION"
# What is taken where nothing is chosen, in this order. UML comes last, and so never, until all parts of the tests have
# been seen green under it. To make it the second choice, put it before EMULATION.
ORDER = (KVM, EMULATION, UML)
BOOT_LIMIT = 10.0
# A processor that boasts of fast string moves gets them from glibc, Go and the kernel for every copy, and QEMU 10.0
# emulates them byte by byte.
EMULATED_CPU = "max,-erms,-fsrm"
# Without a root file system the kernel comes this far only when processor, memory and interrupts all work.
BOOTED = "Unable to mount root fs"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TAP = Path("/dev/net/tun")
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Acceleration:
    """How guests run; `linux` is the kernel of UML guests, `why` says why it is no better one."""

    name: str
    linux: str = ""
    why: str = ""

    def __str__(self) -> str:
        return f"{self.place}{': ' * bool(self.why)}{self.why}"

    @property
    def place(self) -> str:
        return {KVM: "under KVM", UML: "in User-Mode Linux", EMULATION: "in software emulation"}[self.name]

    def arguments(self, translation_megabytes: int) -> list[str]:
        """What QEMU is told for it."""
        if self.name == KVM:
            return ["-accel", "kvm", "-cpu", "host"]
        return ["-accel", f"tcg,thread=multi,tb-size={translation_megabytes}", "-cpu", EMULATED_CPU]


class Unfit(UserError):
    """Guests cannot run this way here."""

    def __init__(self, what: str) -> None:
        super().__init__(what, f"choose another {SETTING}, or none")


@dataclass(frozen=True)
class Probe:
    """Looks for the way in which guests can run here. `memory` is what they have in all, in MB."""

    tools: Tools
    kernel: Path
    memory: int
    # Why these guests must be QEMU's, if they must.
    only_qemu: str = ""

    def choose(self) -> Acceleration:
        forced = os.environ.get(SETTING, "")
        ways: dict[str, Callable[[], Acceleration]] = {KVM: self.kvm, UML: self.uml, EMULATION: self.emulation}
        if forced and forced not in ways:
            raise UsageError(f"{SETTING} is {forced!r}", f"choose from {', '.join(ways)}")
        if forced:
            return self._forced(forced, ways[forced])
        return first([ways[name] for name in ORDER])

    def _forced(self, name: str, way: Callable[[], Acceleration]) -> Acceleration:
        """Guests that must be QEMU's are emulated where UML is forced."""
        if name == UML and self.only_qemu:
            return Acceleration(EMULATION, why=self.only_qemu)
        return Acceleration(name, way().linux, f"{SETTING} says so")

    def kvm(self) -> Acceleration:
        if not Path("/dev/kvm").exists():
            raise Unfit("this machine has no /dev/kvm")
        if not self._answer("acceleration", str(self.kernel), lambda: self._boots_under_kvm()):
            raise Unfit("no guest boots under KVM here")
        return Acceleration(KVM)

    def uml(self) -> Acceleration:
        if self.only_qemu:
            raise Unfit(self.only_qemu)
        if obstacle := uml_obstacle(self.memory):
            raise Unfit(obstacle)
        linux = str(uml_kernel().linux)
        if said := self._answer("uml-boot", linux, lambda: self._boots_as_uml(linux)):
            raise Unfit(said)
        return Acceleration(UML, linux)

    def emulation(self) -> Acceleration:
        return Acceleration(EMULATION)

    def _answer(self, name: str, kernel: str, question: Callable[[], str]) -> str:
        """Asked once per boot of this machine."""

        def answer(place: Path) -> None:
            (place / "said").write_text(question())

        return (cached(name, (BOOT_ID.read_bytes(), kernel), answer) / "said").read_text()

    def _boots_under_kvm(self) -> str:
        """Believe only the kernel's own words."""
        command = [
            "qemu-system-x86_64", *Acceleration(KVM).arguments(64), "-m", "512", "-nographic", "-no-reboot",
            "-nodefaults", "-serial", "stdio", "-kernel", str(self.kernel), "-append", "console=ttyS0 panic=-1",
        ]  # fmt: skip
        try:
            return "yes" * (BOOTED in run(inside(self.tools.root, command, binds=[CACHE]), limit=BOOT_LIMIT).stdout)
        except CommandError:
            return ""

    def _boots_as_uml(self, linux: str) -> str:
        """Why not; empty if it boots."""
        command = [
            "env", f"TMPDIR={MEMORY}", linux, "mem=128M", "ncpus=2", "seccomp=on", "con0=null,fd:1", "con=null",
            "console=tty0", "panic=-1", "uml_dir=/tmp/",
        ]  # fmt: skip
        try:
            said = run(inside(self.tools.root, command), limit=BOOT_LIMIT, ok=range(256)).stdout
        except CommandFailed as error:
            said = error.stdout
        except CommandError as error:
            said = str(error)
        return "" if BOOTED in said else f"no guest boots as User-Mode Linux here: {last_words(said)}"


def uml_likely() -> bool:
    """Whether guests here will run as UML, as far as can be said before anything is built."""
    forced = os.environ.get(SETTING, "")
    if forced or ORDER.index(UML) > ORDER.index(EMULATION):
        return forced == UML
    return not Path("/dev/kvm").exists() and not uml_obstacle(0)


def first(ways: Sequence[Callable[[], Acceleration]]) -> Acceleration:
    """The first that is fit, and why the ones before it were not."""
    reasons = []
    for way in ways:
        try:
            found = way()
        except Unfit as unfit:
            reasons.append(unfit.what)
        else:
            return Acceleration(found.name, found.linux, "; ".join(reasons))
    raise Unfit("; ".join(reasons))


def uml_obstacle(memory: int, tap: Path = TAP, shared: Path = MEMORY, status: Path = Path("/proc/self/status")) -> str:
    """What keeps UML guests from this machine, as far as can be seen without one; empty if nothing does."""
    if os.uname().machine != "x86_64":
        return "User-Mode Linux needs an x86-64 machine"
    if not tap.exists():
        return f"this machine has no {tap}, of which the networks of User-Mode Linux are made"
    if not shared.is_dir():
        return f"this machine has no {shared}, in which User-Mode Linux has its memory"
    if (free := shutil.disk_usage(shared).free >> 20) < memory:
        return f"{shared} has {free} MB free, the guests' memory is {memory} MB"
    if "Seccomp_filters:" not in status.read_text():
        return "this machine's kernel has no seccomp filters, with which User-Mode Linux traps system calls"
    return ""


def last_words(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
