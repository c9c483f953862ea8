"""A guest in User-Mode Linux: a process of this machine, with a kernel of our own."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import run
from moorage.common.errors import MoorageError

from ..build.tools import inside
from . import uml_network
from .machine import CPUS, Machine
from .process import Process

DISKS = ("root", "scratch")
# The guest's memory is a file there without a name, which is gone with its last process.
MEMORY = Path("/dev/shm")
CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
COPY_LIMIT = 600.0


@dataclass(frozen=True)
class UmlMachine(Machine):
    def make_disks(self) -> None:
        """The kernel makes an overlay at the first use of it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in DISKS:
            self._overlay(name).unlink(missing_ok=True)

    def start(self, *, with_parent: bool = False) -> Process:
        network = self.ledger.read().get(uml_network.NAME)
        if not network or not network.alive():
            raise MoorageError(f"the network of {self.name} is gone: start the lab anew")
        # What a kernel before this one has left, if its power was cut.
        shutil.rmtree(self._control, ignore_errors=True)
        self._tie.unlink(missing_ok=True)
        if with_parent:
            self._tie.touch()
        command = inside(self.hardware.tools.root, self.arguments(), cwd=self.directory, binds=[self.directory])
        process = Process.start(uml_network.within(network, command), self.log, with_parent=with_parent)
        self.ledger.add(self.name, process)
        return process

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def reset(self) -> None:
        self.shell.hang_up()
        self.ledger.read()[self.name].kill()
        self.start(with_parent=self.tied)

    def snapshot(self, name: str) -> None:
        """The disks alone, as a power cut would leave them at this moment."""
        for disk in DISKS:
            _copy(self._overlay(disk), self._kept(disk, name))

    def restore_disks(self, name: str) -> None:
        for disk in DISKS:
            if not self._kept(disk, name).exists():
                raise MoorageError(f"{self.name} has kept no moment {name!r}")
            _copy(self._kept(disk, name), self._overlay(disk))

    @property
    def tied(self) -> bool:
        """Whether it ends with the command that started it."""
        return self._tie.exists()

    @property
    def _tie(self) -> Path:
        return self.directory / "with-parent"

    @property
    def _control(self) -> Path:
        return self.directory / "control"

    def _overlay(self, disk: str) -> Path:
        return self.directory / f"{disk}.cow"

    def _kept(self, disk: str, name: str) -> Path:
        return self.directory / f"{disk}.{name}"

    def _signal(self, number: signal.Signals) -> None:
        process = self.ledger.read()[self.name]
        if process.alive():
            for pid in [process.pid, *_descendants(process.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def arguments(self) -> list[str]:
        hardware, guest, number = self.hardware, self.hardware.guest, self.number
        share = hardware.shares[number - 1]
        trusted = CLOCK.exists() and CLOCK.read_text().strip() == "tsc"
        return [
            "env", f"TMPDIR={MEMORY}", str(hardware.acceleration.linux), f"umid={self.name}",
            f"uml_dir={self._control}/", f"mem={share.guest}M", f"ncpus={CPUS}", "seccomp=on",
            f"ubd0={self._overlay('root')},{guest.disk}", f"ubd1={self._overlay('scratch')},{guest.scratch}",
            # Shared: others read it, too.
            f"ubd2rs={hardware.payload}",
            f"vec0:transport=tap,ifname=door{number},gro=1",
            f"vec1:transport=tap,ifname=wire{number},gro=1,mac={self.mac}",
            "con0=null,fd:1", "con=null", "console=tty0", "root=/dev/ubda", "lsm=landlock,yama", "dummy.numdummies=0",
            *["lab_tsc"] * trusted, *hardware.node_words(number).split(),
        ]  # fmt: skip


def _copy(source: Path, target: Path) -> None:
    run(["cp", "--reflink=auto", "--sparse=always", source, target], limit=COPY_LIMIT)


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _children(pid: int) -> Sequence[int]:
    """Of all threads of a process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        lists = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for file in lists for child in file.read_text().split()]
    return []
