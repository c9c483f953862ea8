"""One guest of a lab: its disks, its process, the shell in it. What runs it is a class of its own."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import CommandError
from moorage.common.errors import MoorageError

from ..build.guest import Guest
from ..build.tools import Tools
from .acceleration import Acceleration
from .memory import Share
from .process import Ledger, Process
from .record import Request
from .shell import Shell

CPUS = 2


@dataclass(frozen=True)
class Hardware:
    """What all guests of one lab have in common."""

    tools: Tools
    guest: Guest
    payload: Path
    acceleration: Acceleration
    shares: tuple[Share, ...]
    request: Request

    def node_words(self, number: int) -> str:
        """What a guest's kernel is told of the lab."""
        memory = ",".join(str(share.guest) for share in self.shares)
        nodes = f"lab.node={number} lab.nodes={len(self.shares)} lab.cpus={CPUS} lab.memory={memory}"
        return f"rw quiet audit=0 ipv6.disable={int(not self.request.ipv6)} {nodes}"


@dataclass(frozen=True)
class Machine(ABC):
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

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.directory.parent)

    @property
    def log(self) -> Path:
        """What the program says in which the guest runs."""
        return self.directory / "program.log"

    @property
    def mac(self) -> str:
        """Of the card for the wire between guests."""
        return f"52:54:00:77:00:{self.number:02x}"

    @abstractmethod
    def make_disks(self) -> None:
        """Empty overlays over the shared images."""

    @abstractmethod
    def start(self, *, with_parent: bool = False) -> Process:
        """Boot it from its disks; `with_parent`: it ends when this thread ends."""

    @abstractmethod
    def pause(self) -> None:
        """Let it stand still."""

    @abstractmethod
    def resume(self) -> None: ...

    @abstractmethod
    def reset(self) -> None:
        """A power cut: nothing in the guest is told. It boots again."""

    @abstractmethod
    def snapshot(self, name: str) -> None:
        """Keep this moment of a paused guest."""

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
