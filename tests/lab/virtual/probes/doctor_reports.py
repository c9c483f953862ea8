"""Reports of `moorage doctor` about every fault that a guest's node can have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from support.faults.catalogue import DOCTOR, FAULTS
from support.faults.fault import Effect

from ..guest.broken_node import PLACE, bring
from ..guest.shell import Shell

PROGRAM = ("env", f"--chdir={PLACE}", "/opt/moorage/bin/python3", "-B", "-m", "in_guest.doctor_with_faults")
SOUND = ("sound", "sound again")
LIMIT = 1200.0


@dataclass(frozen=True)
class Look:
    """The report of the doctor while the node had one fault."""

    name: str
    # Why it could not be broken so, if it could not.
    trouble: str
    code: int
    # Check, cause and remedy.
    lines: tuple[str, ...]
    seconds: float

    @property
    def expected(self) -> int:
        return sum(bool(self.name in DOCTOR and re.fullmatch(DOCTOR[self.name], line)) for line in self.lines)

    @property
    def exact(self) -> bool:
        """That fault was found once, and nothing else; of advice no command fails."""
        return (self.code == 0) == (FAULTS[self.name].effect is Effect.ADVICE) and len(self.lines) == self.expected == 1


@dataclass(frozen=True)
class Count:
    """The number of faults, of those that were found exactly, and of false findings."""

    faults: int
    found: int
    false: int

    @classmethod
    def of(cls, looks: Iterable[Look]) -> Count:
        looks = list(looks)
        broken = [look for look in looks if look.name in DOCTOR]
        return cls(
            faults=len(broken),
            found=sum(look.exact for look in broken),
            false=sum(len(look.lines) - min(look.expected, 1) for look in looks),
        )

    def __str__(self) -> str:
        return f"faults={self.found}/{self.faults} false={self.false}"


def looks(shell: Shell, *names: str) -> dict[str, Look]:
    """Break the guest's node in each of these ways in turn, and have the doctor look; all there are, unless named.

    No job may run there meanwhile.
    """
    bring(shell)
    said = shell.run([*PROGRAM, *(names or (SOUND[0], *DOCTOR, SOUND[1]))], limit=LIMIT).stdout
    found = (_look(**json.loads(line)) for line in said.splitlines())
    return {look.name: look for look in found}


def _look(name: str, trouble: str, code: int, said: str, seconds: float) -> Look:
    findings: list[Mapping[str, Any]] = json.loads(said)["findings"] if said else []
    lines = tuple(f"{finding['check']}: {finding['cause']}: {finding['remedy']}" for finding in findings)
    return Look(name, trouble, code, lines, seconds)
