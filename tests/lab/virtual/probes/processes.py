"""Processes of a user in a guest, and their cgroups: an independent count for every claim about jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..guest.shell import Shell

PROGRAM = Path(__file__).resolve().parents[1] / "in_guest" / "processes.py"


@dataclass(frozen=True)
class Seen:
    pid: int
    started: int
    uid: int
    cgroup: str
    name: str


@dataclass(frozen=True)
class Owner:
    """All ids under which a user's processes can appear."""

    uid: int
    subordinate: range

    def owns(self, process: Seen) -> bool:
        return process.uid == self.uid or process.uid in self.subordinate


def owner(shell: Shell, user: str) -> Owner:
    uid = int(shell.output("id", "--user", user))
    rows = (line.split(":") for line in shell.output("cat", "/etc/subuid").splitlines())
    ranges = [range(int(start), int(start) + int(count)) for name, start, count in rows if name == user]
    return Owner(uid, ranges[0] if ranges else range(0))


def user_processes(shell: Shell, whose: Owner) -> set[Seen]:
    listing = shell.run(["python3", "-"], input=PROGRAM.read_bytes()).stdout
    return {seen for line in listing.splitlines() if whose.owns(seen := Seen(**json.loads(line)))}


def outside(processes: Iterable[Seen], cgroup: str) -> set[Seen]:
    """Those that are not below `cgroup`."""
    return {seen for seen in processes if not (seen.cgroup + "/").startswith(cgroup.rstrip("/") + "/")}


def places(processes: Iterable[Seen]) -> list[str]:
    """Where they are, most populated first, for people to read."""
    counted = Counter(_brief(seen.cgroup) for seen in processes)
    return [f"{number:4d}  {place}" for place, number in counted.most_common()]


def _brief(cgroup: str, parts: int = 6) -> str:
    names = cgroup.strip("/").split("/")
    return "/" + "/".join(names[:parts]) + ("/..." if len(names) > parts else "")
