"""A node from nothing to Moorage and back: by the role alone, and nothing of it is left but logs."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import run
from moorage.common.errors import MoorageError

from .build.progress import phase, say
from .guest.cluster import Cluster
from .guest.shell import Shell
from .guest.site import Site
from .probes import doctor_reports
from .probes.doctor_reports import Count

PROGRAM = Path(__file__).resolve().parent / "in_guest" / "system_files.py"
SOURCE = Path(__file__).resolve().parents[3]
TIMED = "tests/native/doctor/test_examine.py::test_quickly_it_takes_less_than_300_ms"
LIMIT = 900.0
PROMISED = 30


@dataclass(frozen=True)
class Outcome:
    """`different` names what was not as before, after all had been taken off."""

    second_changed: int
    different: tuple[str, ...]
    count: Count

    def __str__(self) -> str:
        return f"rollout: second_changed={self.second_changed} uninstall_diff={len(self.different)} {self.count}"

    @property
    def good(self) -> bool:
        found_all = self.count.found == self.count.faults >= PROMISED
        return self.second_changed == 0 and not self.different and found_all and self.count.false == 0


def timed() -> str:
    """What `moorage doctor --quick` costs a node, on this machine itself: an emulated one would not tell."""
    with phase("timing moorage doctor --quick on this machine"):
        argv = [sys.executable, "-m", "pytest", "--quiet", "--capture=no", TIMED]
        ended = run(argv, cwd=SOURCE, env=dict(os.environ), limit=LIMIT, ok=(0, 1))
        said = re.search("^moorage doctor --quick: .+$", ended.stdout, re.MULTILINE)
        if ended.code or not said:
            raise MoorageError(f"{TIMED} has failed: {said[0] if said else ended.stdout}")
        return said[0]


def check(lab: Cluster) -> Outcome:
    """On a guest without Moorage."""
    machine, shell = lab.first, lab.first.shell
    site = Site(lab.directory / "site", machine)
    site.directory.mkdir()
    with phase("looking at the guest as it is"):
        before = system(shell)
    with phase("installing Moorage by its role, to a passing moorage doctor"):
        say(f"{site.install()} tasks have changed something")
    machine.examine()
    with phase("running the role again"):
        second = site.install()
    with phase("breaking the node in each way, and looking with moorage doctor"):
        count = Count.of(doctor_reports.looks(shell).values())
    with phase("taking Moorage off again"):
        site.uninstall()
        lab.wait_idle()
    with phase("looking for what is left"):
        different = tuple(differences(before, system(shell)))
    for one in different:
        say(f"not as before: {one}")
    return Outcome(second, different, count)


def system(shell: Shell) -> dict[str, str]:
    """Files, and what systemd knows; what is the same has the same description."""
    said = shell.run(["python3", "-I", "-B", "-"], input=PROGRAM.read_bytes(), limit=LIMIT).stdout
    seen: dict[str, str] = json.loads(said)
    return seen


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [
        f"{name}: {before.get(name, 'not there')} before, {after.get(name, 'not there')} now"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
