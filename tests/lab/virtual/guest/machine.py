"""One guest: its disks, its QEMU process, its control socket."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import CommandError, run
from moorage.common.errors import MoorageError

from ..build.cache import CACHE
from ..build.guest import Guest
from ..build.tools import Tools, inside
from .acceleration import Acceleration
from .memory import Share
from .monitor import Monitor
from .process import Process
from .record import Request
from .shell import Shell

CPUS = 2
WIRE = "230.77.0.1"


@dataclass(frozen=True)
class Hardware:
    """What all guests of one lab have in common."""

    tools: Tools
    guest: Guest
    payload: Path
    acceleration: Acceleration
    shares: tuple[Share, ...]
    request: Request

    def kernel_line(self, number: int) -> str:
        memory = ",".join(str(share.guest) for share in self.shares)
        nodes = f"lab.node={number} lab.nodes={len(self.shares)} lab.cpus={CPUS} lab.memory={memory}"
        lean = f"mitigations=off quiet audit=0 nowatchdog ipv6.disable={int(not self.request.ipv6)}"
        # Without AppArmor Debian's kernel (6.12) turns to SELinux, which has no policy here.
        apparmor = self.request.apparmor
        guards = f"lsm=landlock,yama,{'apparmor,' * apparmor}bpf apparmor={int(apparmor)} selinux=0"
        return f"root=/dev/vda rw console=ttyS0 {lean} {guards} {nodes}"


@dataclass(frozen=True)
class Machine:
    number: int
    directory: Path
    hardware: Hardware

    @property
    def name(self) -> str:
        return f"berth{self.number}"

    @property
    def port(self) -> int:
        return self.hardware.request.port + self.number

    @property
    def shell(self) -> Shell:
        return Shell(self.port, self.hardware.guest.key, self.directory / "ssh")

    def _monitor(self) -> Monitor:
        return Monitor(self.directory / "monitor")

    def _tell(self, command: str) -> None:
        with self._monitor() as monitor:
            monitor.execute(command)

    def make_disks(self) -> None:
        """Empty overlays over the shared images."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name, base in (("root", self.hardware.guest.disk), ("scratch", self.hardware.guest.scratch)):
            self._tool("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), f"{name}.qcow2")

    def start(self, *, snapshot: str | None = None, with_parent: bool = False) -> Process:
        """Start QEMU; paused at `snapshot` if one is named; `with_parent`: it ends when this process ends."""
        (self.directory / "monitor").unlink(missing_ok=True)
        tie = ["setpriv", "--pdeathsig", "KILL"] if with_parent else []
        resumed = ["-loadvm", snapshot, "-S"] if snapshot else []
        qemu = [*self.arguments(), *resumed]
        command = tie + inside(self.hardware.tools.root, qemu, cwd=self.directory, binds=[self.directory])
        with (self.directory / "qemu.log").open("wb") as log:
            # Not `run`: this one is meant to go on after the command that started it.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        # From here on it is known by its number and start time; this object need not wonder how it ends.
        process.returncode = 0
        return Process.of(process.pid)

    def pause(self) -> None:
        self._tell("stop")

    def resume(self) -> None:
        self._tell("cont")

    def reset(self) -> None:
        """A power cut: nothing in the guest is told."""
        self.shell.hang_up()
        self._tell("system_reset")

    def snapshot(self, name: str) -> None:
        with self._monitor() as monitor:
            monitor.human(f"savevm {name}")

    def load(self, name: str) -> None:
        with self._monitor() as monitor:
            monitor.human(f"loadvm {name}")

    def boot_id(self) -> str:
        return self.shell.output("cat", "/proc/sys/kernel/random/boot_id")

    def wait_answer(self, limit: float) -> None:
        self._wait(lambda: bool(self.boot_id()), limit, "did not answer")

    def wait_boot(self, earlier: str, limit: float) -> None:
        """Until the guest has booted anew and its slurmd has come up."""
        slurmd = ["systemctl", "is-active", "--quiet", "slurmd"]
        self._wait(lambda: self.boot_id() != earlier and self.shell.run(slurmd).code == 0, limit, "did not boot")

    def _wait(self, condition: Callable[[], bool], limit: float, otherwise: str) -> None:
        """A question to which there is no answer yet is asked again."""
        deadline = time.monotonic() + limit
        while True:
            with suppress(CommandError):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise MoorageError(f"{self.name} {otherwise} within {limit:.0f} s: see {self.directory}/console.log")
            time.sleep(0.5)

    def examine(self) -> None:
        """The product's own checks of a node: what they find here, they would find in each job."""
        said = self.shell.run(["/opt/moorage/bin/moorage", "doctor"], ok=(0, 1, 3))
        if said.code:
            raise MoorageError(f"{self.name} is not fit for jobs: {'; '.join(said.stdout.splitlines())}")

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

    def arguments(self) -> list[str]:
        hardware, guest, share = self.hardware, self.hardware.guest, self.hardware.shares[self.number - 1]
        return [
            "qemu-system-x86_64", "-name", self.name, *hardware.acceleration.arguments(share.translation),
            "-smp", str(CPUS), "-m", str(share.guest), "-display", "none", "-nodefaults", "-no-user-config",
            "-kernel", str(guest.kernel), "-initrd", str(guest.initrd), "-append", hardware.kernel_line(self.number),
            "-drive", "file=root.qcow2,if=virtio,cache=unsafe", "-drive", "file=scratch.qcow2,if=virtio,cache=unsafe",
            "-drive", f"file={hardware.payload},if=virtio,format=raw,readonly=on",
            "-netdev", f"user,id=door,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22",
            "-device", "virtio-net-pci,netdev=door",
            "-netdev", f"socket,id=wire,mcast={WIRE}:{hardware.request.port},localaddr=127.0.0.1",
            "-device", f"virtio-net-pci,netdev=wire,mac=52:54:00:77:00:{self.number:02x}",
            "-device", "virtio-rng-pci", "-serial", "file:console.log",
            "-qmp", "unix:monitor,server=on,wait=off",
        ]  # fmt: skip

    def _tool(self, *argv: str) -> None:
        run(inside(self.hardware.tools.root, argv, cwd=self.directory, binds=[CACHE, self.directory]))
