"""The lab's guests taken together: started, found again, paused in one moment, and gone."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import CommandError
from moorage.common.errors import MoorageError, UserError

from ..build.guest import guest
from ..build.payload import payload
from ..build.progress import phase
from ..build.tools import tools
from . import memory, record, uml_network
from .acceleration import EMULATION, UML, Probe
from .machine import Hardware, Machine
from .process import Ledger, Process
from .qemu_machine import QemuMachine
from .record import TOO_OLD, Record, Request
from .uml_machine import UmlMachine

BOOT_LIMIT = 300.0
# A job that is younger when its node registers is not taken for lost: BatchStartTimeout, and 10 s for a message.
LOST_AFTER = 30 + 10
LONGEST_DIRECTORY = 80  # Unix socket paths end at 108 bytes
SNAPSHOT = "lab"


class LabDown(UserError):
    """There are no guests to work with."""


@dataclass(frozen=True)
class Cluster:
    directory: Path
    request: Request
    hardware: Hardware

    @property
    def machines(self) -> list[Machine]:
        made = UmlMachine if self._uml else QemuMachine
        numbers = range(1, self.request.nodes + 1)
        return [made(number, self.directory / f"berth{number}", self.hardware) for number in numbers]

    @property
    def _uml(self) -> bool:
        return self.hardware.acceleration.name == UML

    @property
    def first(self) -> Machine:
        return self.machines[0]

    def machine(self, name: str) -> Machine:
        """By host name (berth1), Slurm's name (n1) or number."""
        for machine in self.machines:
            if name in (machine.name, f"n{machine.number}", str(machine.number)):
                return machine
        raise UserError(f"no guest is called {name!r}", f"there are {', '.join(m.name for m in self.machines)}")

    def start(self, *, with_parent: bool = False) -> None:
        self.boot(with_parent=with_parent)
        if not self.request.bare:
            with phase("looking for faults with moorage doctor"):
                self._all(lambda machine: machine.examine())

    def boot(self, *, with_parent: bool = False) -> None:
        """From new disks to an idle Slurm."""
        with phase(f"booting {self.request.nodes} guest(s) of Debian {self.request.suite}"):
            for machine in self.machines:
                machine.make_disks()
            self._boot(with_parent=with_parent)
            if self.request.suite in TOO_OLD:
                self._all(lambda machine: machine.wait_answer(BOOT_LIMIT))
            else:
                self.wait_idle()
                # Slurm's controller does not start from what a power cut leaves of the files of its first start.
                self.first.shell.run(["sync"])

    def _boot(self, *, with_parent: bool = False) -> None:
        if self._uml:
            ports = [machine.port for machine in self.machines]
            network = uml_network.start(ports, self.directory / "wire.log", with_parent=with_parent)
            self._ledger.add(uml_network.NAME, network)
        for machine in self.machines:
            machine.start(with_parent=with_parent)

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self.directory)

    def stop(self) -> None:
        for process in self._ledger.read().values():
            process.kill()
        for machine in self.machines:
            machine.shell.hang_up()

    @property
    def snapshots(self) -> bool:
        """Whether a kept moment has the memory of the guests, or only their disks."""
        return not self._uml

    def snapshot(self) -> None:
        """Keep this moment of all guests; a second one replaces the first."""
        with phase(f"keeping {'a snapshot' if self.snapshots else 'the disks'} of all guests"):
            if self._uml:
                # What is not yet on a disk is not kept.
                for machine in self.machines:
                    machine.shell.run(["sync"])
            with self._paused():
                self._all(lambda machine: machine.snapshot(SNAPSHOT))

    def restore(self) -> None:
        """Go back to the kept moment, with the clocks of today; guests without a snapshot boot from the kept disks."""
        with phase("restoring all guests to an idle Slurm"):
            if self._uml:
                self._boot_again()
            else:
                self._load()
                for machine in self._in_qemu():
                    machine.set_clock()
            self.wait_idle()

    def restore_with_jobs(self) -> None:
        """Go back to a snapshot in which jobs run: their time goes on where it stood still, for all guests alike."""
        if not self.snapshots:
            raise MoorageError("guests in User-Mode Linux have no snapshots: their jobs end with a boot")
        with phase("restoring all guests with their jobs"):
            self._load()

    def _boot_again(self) -> None:
        tied = any(machine.tied for machine in self.machines if isinstance(machine, UmlMachine))
        self.stop()
        for machine in self.machines:
            if isinstance(machine, UmlMachine):
                machine.restore_disks(SNAPSHOT)
        self._boot(with_parent=tied)

    def _in_qemu(self) -> list[QemuMachine]:
        return [machine for machine in self.machines if isinstance(machine, QemuMachine)]

    def _load(self) -> None:
        if all(process.alive() for process in self.processes().values()):
            with self._paused(), ThreadPoolExecutor(len(self.machines)) as pool:
                list(pool.map(lambda machine: machine.load(SNAPSHOT), self._in_qemu()))
        else:
            self.stop()
            for paused in self._in_qemu():
                paused.start_at(SNAPSHOT)
            for paused in self._in_qemu():
                paused.wait_monitor(BOOT_LIMIT)
                paused.resume()
        for machine in self.machines:
            machine.shell.hang_up()

    @contextmanager
    def others_waiting(self) -> Iterator[None]:
        """The first guest has this machine to itself; the others stand still, and are back in Slurm afterwards.

        A guest that does nothing costs nothing where nothing is emulated: there they go on.
        """
        if self.hardware.acceleration.name != EMULATION:
            yield
            return
        for other in self._in_qemu()[1:]:
            other.pause()
        try:
            yield
        finally:
            for other in self._in_qemu()[1:]:
                other.resume()
                other.shell.hang_up()
                other.set_clock()
                # Slurm has given up on a node that was silent for so long, and asks again only every few minutes.
                other.shell.run(["systemctl", "restart", "slurmd"])
            self.wait_idle()

    def reset(self, name: str) -> None:
        """Cut the power of one guest and let it boot again, with the disk it had."""
        machine = self.machine(name)
        with phase(f"cutting the power of {machine.name} and booting it again"):
            before = machine.boot_id()
            machine.reset()
            machine.wait_boot(before, BOOT_LIMIT)
            self._lose_jobs(machine)
            self.wait_idle()

    def _lose_jobs(self, machine: Machine) -> None:
        """Have Slurm see that the node's jobs are gone: it looks when a node registers, and that is rare."""
        while ages := self._ages(machine):
            if min(ages) > LOST_AFTER:
                machine.shell.run(["systemctl", "restart", "slurmd"])
                return
            time.sleep(0.5)

    def _ages(self, machine: Machine) -> list[float]:
        """Of the jobs that Slurm believes to run there, in seconds; to a new controller none is older than itself."""
        rows = self.first.shell.output("squeue", "--noheader", f"--nodelist=n{machine.number}", "--format=%S").split()
        if not rows:
            return []
        settings = self.first.shell.output("scontrol", "show", "config").splitlines()
        begun = next(line.partition("=")[2].strip() for line in settings if line.startswith("BOOT_TIME"))
        now = float(self.first.shell.output("date", "+%s"))
        return [now - float(self.first.shell.output("date", f"--date={row}", "+%s")) for row in (*rows, begun)]

    def processes(self) -> dict[str, Process]:
        return _guests(self.directory)

    def node_states(self) -> list[str]:
        """Slurm's own word on every node, empty while it does not answer."""
        try:
            rows = self.first.shell.output("sinfo", "--noheader", "--Node", "--format=%N %T", limit=60).splitlines()
        except CommandError:
            return []
        # A node stands in a row for each of its partitions.
        return [state for _, state in sorted(row.split() for row in set(rows))]

    def wait_idle(self, limit: float = BOOT_LIMIT) -> None:
        deadline = time.monotonic() + limit
        while (states := self.node_states()) != ["idle"] * self.request.nodes:
            self._require_alive()
            if time.monotonic() > deadline:
                raise MoorageError(
                    f"Slurm's nodes are not idle after {limit:.0f} s ({states or 'no answer'}): see {self.directory}"
                )
            time.sleep(0.5)

    def _require_alive(self) -> None:
        for name, process in self.processes().items():
            if not process.alive():
                log = self.machine(name).log.read_text(errors="replace").strip().splitlines()
                raise MoorageError(f"the guest {name} ended: {log[-1] if log else 'it said nothing'}")

    def _all(self, action: Callable[[Machine], None]) -> None:
        with ThreadPoolExecutor(len(self.machines)) as pool:
            list(pool.map(action, self.machines))

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self._all(lambda machine: machine.pause())
        try:
            yield
        finally:
            self._all(lambda machine: machine.resume())


def prepare(directory: Path, request: Request) -> Cluster:
    """Build what is missing, check what this machine can carry, and lay out a cluster that is not yet started."""
    if len(str(directory)) > LONGEST_DIRECTORY:
        raise UserError(
            f"{directory} is too long a name for control sockets", f"use at most {LONGEST_DIRECTORY} characters"
        )
    carried = payload()
    built = guest(request.suite, lambda: carried.archive, bare=request.bare)
    shares = memory.shares(request.nodes)
    whole = sum(share.guest for share in shares)
    how = Probe(tools(), built.kernel, whole, request.reason_for_qemu()).choose()
    memory.check(shares, emulated=how.name == EMULATION)
    check_ports(request)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    kept = Record(request, built, carried.disk, how)
    kept.keep(directory)
    return _cluster(directory, kept)


def find(directory: Path) -> Cluster:
    """The cluster that an earlier `up` left in `directory`."""
    try:
        return _cluster(directory, record.read(directory))
    except FileNotFoundError:
        raise LabDown(f"no lab in {directory}", "start one with `lab up`") from None


def _cluster(directory: Path, kept: Record) -> Cluster:
    request, how = kept.request, kept.acceleration
    shares = tuple(memory.shares(request.nodes))
    hardware = Hardware(tools(), kept.guest, kept.payload, how, shares, request)
    return Cluster(directory, request, hardware)


def running(directory: Path) -> Cluster:
    cluster = find(directory)
    if not is_up(directory):
        raise LabDown(f"the lab in {directory} is down", "start it with `lab up`")
    return cluster


def is_up(directory: Path) -> bool:
    return any(process.alive() for process in Ledger(directory).read().values())


def _guests(directory: Path) -> dict[str, Process]:
    """The guests' processes, as far as any were ever started there."""
    return {name: process for name, process in Ledger(directory).read().items() if name != uml_network.NAME}


def check_ports(request: Request) -> None:
    for port in range(request.port + 1, request.port + 1 + request.nodes):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise UserError(
                    f"port {port} is in use", "another lab? stop it with `lab down`, or choose with --port"
                ) from None
