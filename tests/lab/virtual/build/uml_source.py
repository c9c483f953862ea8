"""The source of the UML kernel: Debian's, with our edits put in. An edit that does not fit the source fails."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import CommandFailed, run
from moorage.common.errors import MoorageError

from . import mirror
from .cache import cached
from .progress import phase
from .tools import tools

PACKAGE = "linux-source-7.2"
SUITES = ("trixie-backports", "sid")
PLACE = Path(__file__).resolve().parents[2] / "uml"
OURS = {name: f"arch/x86/um/vdso/{name}" for name in ("lab_clock.c", "lab_clock.h", "lab_vdso.h")}
# A UML kernel is made of none of these; their Kconfig files are read all the same.
_DRIVERS = (
    "accel", "clk", "crypto", "gpu", "hid", "hwmon", "iio", "infiniband", "md", "media", "mtd", "net/ethernet",
    "net/wireless", "phy", "pinctrl", "platform", "scsi", "soc", "staging", "usb",
)  # fmt: skip
UNUSED = (
    "*.rst", "*.dts", "*.dtsi", "*/Documentation/*.yaml", "*/Documentation/ABI/*", "*/arch/[!ux]*/*.[chS]",
    "*/sound/*.[ch]", "*/tools/perf/*", "*/tools/testing/*", *(f"*/drivers/{name}/*.[ch]" for name in _DRIVERS),
)  # fmt: skip
LIMIT = 900.0


class SourceChanged(MoorageError):
    """An edit does not fit this source."""


@dataclass(frozen=True)
class Edit:
    """In `file` each of the `count` places that read `old` reads `new` afterwards."""

    file: str
    old: str
    new: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.file}: {self.old!r} -> {self.new!r}, {self.count} times"

    def applied(self, text: str) -> str:
        found = text.count(self.old)
        if found != self.count:
            raise SourceChanged(
                f"{self.file} has {self.old!r} {found} times, not {self.count}: "
                f"adapt the edits in {Path(__file__).name} to this source"
            )
        return text.replace(self.old, self.new)


def _lock(verb: str, queue: str, count: int) -> Edit:
    """A tap device has no queues, and so no locks in them."""
    call = f"spin_{verb}(&vp->{queue}->head_lock);"
    return Edit("arch/um/drivers/vector_kern.c", call, f"if (vp->{queue}) {call}", count)


EDITS = (
    _lock("lock", "rx_queue", 3),
    _lock("unlock", "rx_queue", 3),
    _lock("lock", "tx_queue", 2),
    _lock("unlock", "tx_queue", 2),
    # kubelet starts on no machine whose clock speed it cannot read.
    Edit(
        "arch/um/kernel/um_arch.c",
        'seq_printf(m, "cache_alignment',
        'seq_puts(m, "cpu MHz\\t\\t: 2000.000\\n");\n\tseq_printf(m, "cache_alignment',
    ),
    # One thread of a process runs at a time, and its mutex is paused meanwhile: a waiter must not spin.
    Edit("arch/x86/um/Kconfig", "\tselect ARCH_SUPPORTS_ATOMIC_RMW\n", ""),
    Edit("arch/x86/um/vdso/Makefile", "obj-y += vdso.o vma.o", "obj-y += vdso.o vma.o lab_clock.o"),
    Edit(
        "arch/x86/um/vdso/vma.c",
        "unsigned long um_vdso_addr;",
        "unsigned long um_vdso_addr;\nvoid lab_clock_place(void *vdso);",
    ),
    Edit(
        "arch/x86/um/vdso/vma.c",
        "BUG_ON(vdso_end - vdso_start > PAGE_SIZE)",
        "BUG_ON(vdso_end - vdso_start > PAGE_SIZE - 64)",
    ),
    Edit(
        "arch/x86/um/vdso/vma.c",
        "copy_page(page_address(um_vdso), vdso_start);",
        "copy_page(page_address(um_vdso), vdso_start);\n\tlab_clock_place(page_address(um_vdso));",
    ),
    Edit("arch/x86/um/vdso/um_vdso.c", "#include <asm/unistd.h>", '#include <asm/unistd.h>\n#include "lab_vdso.h"'),
    Edit(
        "arch/x86/um/vdso/um_vdso.c",
        '\tlong ret;\n\n\tasm("syscall"\n\t\t: "=a" (ret)\n\t\t: "0" (__NR_clock_gettime)',
        "\tunsigned long sec, ns;\n\tlong ret;\n\n\tif (lab_time(clock, &sec, &ns)) {\n\t\tts->tv_sec = sec;\n"
        "\t\tts->tv_nsec = ns;\n\t\treturn 0;\n\t}\n"
        '\tasm("syscall"\n\t\t: "=a" (ret)\n\t\t: "0" (__NR_clock_gettime)',
    ),
    Edit(
        "arch/x86/um/vdso/um_vdso.c",
        '\tlong ret;\n\n\tasm("syscall"\n\t\t: "=a" (ret)\n\t\t: "0" (__NR_gettimeofday)',
        "\tunsigned long sec, ns;\n\tlong ret;\n\n\tif (tv && !tz && lab_time(0, &sec, &ns)) {\n\t\ttv->tv_sec = sec;\n"
        "\t\ttv->tv_usec = ns / 1000;\n\t\treturn 0;\n\t}\n"
        '\tasm("syscall"\n\t\t: "=a" (ret)\n\t\t: "0" (__NR_gettimeofday)',
    ),
)


def archive(*, refresh: bool = False) -> Path:
    """Debian's archive of the source as of the first build or the last refresh: `source.tar.xz` and `version`."""

    def build(place: Path) -> None:
        with phase(f"fetching the kernel's source ({PACKAGE})"):
            _fetch(place)

    return cached("uml-source", (PACKAGE, *SUITES), build, renew=refresh)


def _fetch(place: Path) -> None:
    package = _download(place)
    tools().run(["dpkg-deb", "--extract", str(package), str(place / "unpacked")], limit=LIMIT)
    shutil.move(place / f"unpacked/usr/src/{PACKAGE}.tar.xz", place / "source.tar.xz")
    version = tools().run(["dpkg-deb", "--field", str(package), "Version"]).stdout.strip()
    (place / "version").write_text(version)
    shutil.rmtree(place / "unpacked")
    package.unlink()


def _download(place: Path) -> Path:
    """The package, from the first suite that has it."""
    first, second = SUITES
    try:
        return _download_from(first, place)
    except CommandFailed:
        return _download_from(second, place)


def _download_from(suite: str, place: Path) -> Path:
    """By the apt of the tools tree, which checks signatures, with lists of its own."""
    apt, log = place / "apt", place / "log"
    shutil.rmtree(apt, ignore_errors=True)
    (apt / "lists/partial").mkdir(parents=True)
    (apt / "sources").write_text(f"deb {mirror.debian_mirror()} {suite} main\n")
    (apt / "settings").write_text("".join(f"{option};\n" for option in mirror.apt_options()))
    lists = (f"Etc::SourceList={apt}/sources", "Etc::SourceParts=/dev/null", f"State::Lists={apt}/lists")
    places = [f"-oDir::{setting}" for setting in (*lists, f"Cache={apt}")]
    get = ["apt-get", "--quiet", "-oAPT::Sandbox::User=root", *places]
    environment = {"APT_CONFIG": str(apt / "settings")}
    tools().run([*get, "update"], env=environment, limit=LIMIT, log=log)
    tools().run([*get, "download", f"{PACKAGE}/{suite}"], cwd=place, env=environment, limit=LIMIT, log=log)
    shutil.rmtree(apt)
    (package,) = place.glob("*.deb")
    return package


def unpack(source: Path, place: Path) -> Path:
    """The source tree below `place`, with our edits in it."""
    exclude = [f"--exclude={pattern}" for pattern in UNUSED]
    run(["tar", "--extract", f"--file={source / 'source.tar.xz'}", f"--directory={place}", *exclude], limit=LIMIT)
    tree = place / PACKAGE
    edit(tree)
    return tree


def edit(tree: Path) -> None:
    for change in EDITS:
        file = tree / change.file
        if not file.is_file():
            raise SourceChanged(f"this source has no {change.file}: adapt the edits in {Path(__file__).name}")
        file.write_text(change.applied(file.read_text()))
    for name, target in OURS.items():
        shutil.copy(PLACE / name, tree / target)
