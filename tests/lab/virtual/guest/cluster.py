"""The lab's guests taken together: started, found again, paused in one moment, and gone."""

from __future__ import annotations

import dataclasses
import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import CommandError
from moorage.common.errors import MoorageError, UserError

from ..build.guest import guest
from ..build.payload import payload
from ..build.progress import phase
from ..build.tools import tools
from . import acceleration, memory, record
from .machine import Hardware, Machine
from .process import Process
from .record import Record, Request

BOOT_LIMIT = 300.0
# A job that is younger when its node registers is not taken for lost: BatchStartTimeout, and 10 s for a message.
LOST_AFTER = 30 + 10
LONGEST_DIRECTORY = 80  # Unix socket paths end at 108 bytes
SNAPSHOT = "lab"
# Booted to be refused; its Slurm cannot read the lab's configuration.
TOO_OLD = ("bookworm",)


class LabDown(UserError):
    """There are no guests to work with."""


@dataclass(frozen=True)
class Cluster:
    directory: Path
    request: Request
    hardware: Hardware

    @property
    def machines(self) -> list[Machine]:
        numbers = range(1, self.request.nodes + 1)
        return [Machine(number, self.directory / f"berth{number}", self.hardware) for number in numbers]

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
        with phase(f"booting {self.request.nodes} guest(s) of Debian {self.request.suite}"):
            for machine in self.machines:
                machine.make_disks()
            self._keep({machine.name: machine.start(with_parent=with_parent) for machine in self.machines})
            if self.request.suite in TOO_OLD:
                self._all(lambda machine: machine.wait_answer(BOOT_LIMIT))
            else:
                self.wait_idle()
        if not self.request.bare:
            with phase("looking for faults with moorage doctor"):
                self._all(lambda machine: machine.examine())

    def stop(self) -> None:
        for process in self.processes().values():
            process.kill()
        for machine in self.machines:
            machine.shell.hang_up()

    def snapshot(self) -> None:
        """Keep this moment of all guests; a second one replaces the first."""
        with phase("keeping a snapshot of all guests"), self._paused():
            self._all(lambda machine: machine.snapshot(SNAPSHOT))

    def restore(self) -> None:
        """Go back to the snapshot, with the clocks of today."""
        with phase("restoring all guests to an idle Slurm"):
            self._load()
            self._all(lambda machine: machine.set_clock())
            self.wait_idle()

    def restore_with_jobs(self) -> None:
        """Go back to a snapshot in which jobs run: their time goes on where it stood still, for all guests alike."""
        with phase("restoring all guests with their jobs"):
            self._load()

    def _load(self) -> None:
        if all(process.alive() for process in self.processes().values()):
            with self._paused():
                self._all(lambda machine: machine.load(SNAPSHOT))
        else:
            self.stop()
            self._keep({machine.name: machine.start(snapshot=SNAPSHOT) for machine in self.machines})
            self._all(lambda machine: machine.wait_monitor(BOOT_LIMIT))
            self._all(lambda machine: machine.resume())
        for machine in self.machines:
            machine.shell.hang_up()

    @contextmanager
    def others_waiting(self) -> Iterator[None]:
        """The first guest has this machine to itself; the others stand still, and are back in Slurm afterwards."""
        for machine in self.machines[1:]:
            machine.pause()
        try:
            yield
        finally:
            for machine in self.machines[1:]:
                machine.resume()
                machine.shell.hang_up()
                machine.set_clock()
                # Slurm has given up on a node that was silent for so long, and asks again only every few minutes.
                machine.shell.run(["systemctl", "restart", "slurmd"])
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
        return _processes(self.directory)

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
                log = (self.directory / name / "qemu.log").read_text().strip().splitlines()
                raise MoorageError(f"the guest {name} ended: {log[-1] if log else 'QEMU said nothing'}")

    def _keep(self, processes: dict[str, Process]) -> None:
        text = json.dumps({name: dataclasses.asdict(process) for name, process in processes.items()})
        (self.directory / "processes.json").write_text(text)

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
    how = acceleration.probe(tools(), built.kernel)
    memory.check(memory.shares(request.nodes), emulated=how.name != "kvm")
    check_ports(request)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    kept = Record(request, built, carried.disk, how.name)
    kept.keep(directory)
    return _cluster(directory, kept)


def find(directory: Path) -> Cluster:
    """The cluster that an earlier `up` left in `directory`."""
    try:
        return _cluster(directory, record.read(directory))
    except FileNotFoundError:
        raise LabDown(f"no lab in {directory}", "start one with `lab up`") from None


def _cluster(directory: Path, kept: Record) -> Cluster:
    request, how = kept.request, acceleration.Acceleration(kept.acceleration)
    shares = tuple(memory.shares(request.nodes))
    hardware = Hardware(tools(), kept.guest, kept.payload, how, shares, request)
    return Cluster(directory, request, hardware)


def running(directory: Path) -> Cluster:
    cluster = find(directory)
    if not is_up(directory):
        raise LabDown(f"the lab in {directory} is down", "start it with `lab up`")
    return cluster


def is_up(directory: Path) -> bool:
    return any(process.alive() for process in _processes(directory).values())


def _processes(directory: Path) -> dict[str, Process]:
    """The guests' QEMU processes, as far as any were ever started there."""
    with suppress(FileNotFoundError):
        kept = json.loads((directory / "processes.json").read_text())
        return {name: Process(**fields) for name, fields in kept.items()}
    return {}


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
