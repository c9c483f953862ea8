"""A guest in QEMU, under KVM or in software emulation: its kernel is Debian's own."""

from __future__ import annotations

import time
from dataclasses import dataclass

from moorage.common.command import run

from ..build.cache import CACHE
from ..build.tools import inside
from .machine import CPUS, Machine
from .monitor import Monitor
from .process import Process

WIRE = "230.77.0.1"


@dataclass(frozen=True)
class QemuMachine(Machine):
    def _monitor(self) -> Monitor:
        return Monitor(self.directory / "monitor")

    def _tell(self, command: str) -> None:
        with self._monitor() as monitor:
            monitor.execute(command)

    def make_disks(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for name, base in (("root", self.hardware.guest.disk), ("scratch", self.hardware.guest.scratch)):
            self._tool("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), f"{name}.qcow2")

    def start(self, *, with_parent: bool = False) -> Process:
        return self._start(self.arguments(), with_parent)

    def start_at(self, snapshot: str) -> Process:
        """Paused at this moment."""
        return self._start([*self.arguments(), "-loadvm", snapshot, "-S"], with_parent=False)

    def _start(self, arguments: list[str], with_parent: bool) -> Process:
        (self.directory / "monitor").unlink(missing_ok=True)
        command = inside(self.hardware.tools.root, arguments, cwd=self.directory, binds=[self.directory])
        process = Process.start(command, self.log, with_parent=with_parent)
        self.ledger.add(self.name, process)
        return process

    def pause(self) -> None:
        self._tell("stop")

    def resume(self) -> None:
        self._tell("cont")

    def reset(self) -> None:
        self.shell.hang_up()
        self._tell("system_reset")

    def snapshot(self, name: str) -> None:
        with self._monitor() as monitor:
            monitor.human(f"savevm {name}")

    def load(self, name: str) -> None:
        with self._monitor() as monitor:
            monitor.human(f"loadvm {name}")

    def set_clock(self) -> None:
        """A restored guest believes it is still the moment of its snapshot."""
        self.shell.run(["date", "--set", f"@{time.time():.3f}"])

    def wait_monitor(self, limit: float) -> None:
        """Until QEMU has loaded its snapshot and answers."""
        deadline = time.monotonic() + limit
        while True:
            try:
                with self._monitor():
                    return
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def kernel_line(self) -> str:
        # Without AppArmor Debian's kernel (6.12) turns to SELinux, which has no policy here.
        apparmor = self.hardware.request.apparmor
        guards = f"lsm=landlock,yama,{'apparmor,' * apparmor}bpf apparmor={int(apparmor)} selinux=0"
        lean = "root=/dev/vda console=ttyS0 mitigations=off nowatchdog"
        return f"{lean} {guards} {self.hardware.node_words(self.number)}"

    def arguments(self) -> list[str]:
        hardware, guest, share = self.hardware, self.hardware.guest, self.hardware.shares[self.number - 1]
        return [
            "qemu-system-x86_64", "-name", self.name, *hardware.acceleration.arguments(share.translation),
            "-smp", str(CPUS), "-m", str(share.guest), "-display", "none", "-nodefaults", "-no-user-config",
            "-kernel", str(guest.kernel), "-initrd", str(guest.initrd), "-append", self.kernel_line(),
            "-drive", "file=root.qcow2,if=virtio,cache=unsafe", "-drive", "file=scratch.qcow2,if=virtio,cache=unsafe",
            "-drive", f"file={hardware.payload},if=virtio,format=raw,readonly=on",
            "-netdev", f"user,id=door,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22",
            "-device", "virtio-net-pci,netdev=door",
            "-netdev", f"socket,id=wire,mcast={WIRE}:{hardware.request.port},localaddr=127.0.0.1",
            "-device", f"virtio-net-pci,netdev=wire,mac={self.mac}",
            "-device", "virtio-rng-pci", "-serial", "file:console.log",
            "-qmp", "unix:monitor,server=on,wait=off",
        ]  # fmt: skip

    def _tool(self, *argv: str) -> None:
        run(inside(self.hardware.tools.root, argv, cwd=self.directory, binds=[CACHE, self.directory]))
