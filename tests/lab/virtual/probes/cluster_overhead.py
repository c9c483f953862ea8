"""The memory and CPU time of an idle cluster: a site's reserve and minimum for a job are based on them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Of the node container's cgroup and of all its pods': what cannot be taken back from them.
LOOK = """\
cd /sys/fs/cgroup
grep -HE "^(anon|kernel) " memory.stat $(find . -maxdepth 3 -name "*kubepods.slice" -printf "%p/memory.stat ")
"""
_ROW = re.compile(r"(?P<file>\S+):(?:anon|kernel) (?P<size>\d+)")


@dataclass(frozen=True)
class Rest:
    """Memory in bytes: of pods, and of kubelet, containerd and systemd of the node."""

    pods: int
    others: int


def at_rest(said: str) -> Rest:
    sizes: dict[str, int] = {}
    for row in map(_ROW.fullmatch, said.splitlines()):
        assert row, said
        sizes[row["file"]] = sizes.get(row["file"], 0) + int(row["size"])
    whole = sizes.pop("memory.stat")
    (pods,) = sizes.values()
    return Rest(pods, whole - pods)


def asked_for(pods: Iterable[dict[str, Any]]) -> int:
    """Of CPUs, in thousandths."""
    containers = (container for pod in pods for container in pod["spec"]["containers"])
    return sum(_thousandths(one.get("resources", {}).get("requests", {}).get("cpu", "0")) for one in containers)


def _thousandths(quantity: str) -> int:
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000
