"""What a test may need of a guest's kernel that not every lab has, and how it is found out.

A test says `@pytest.mark.needs("modules")`. Where the probe fails in the lab's guests the test is skipped with the
reason, and counted at the end of the run. Such tests run under emulation, as a part of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from .cluster import Cluster


@dataclass(frozen=True)
class Need:
    feature: str
    met: Callable[[Cluster], bool]


def _in_guest(*argv: str) -> Callable[[Cluster], bool]:
    return lambda lab: lab.first.shell.run(argv, ok=range(256)).code == 0


NEEDS = {
    "debian kernel": Need("Debian's own kernel", _in_guest("sh", "-c", "test -d /lib/modules/$(uname -r)")),
    "modules": Need("a kernel with modules that can be taken out", _in_guest("test", "-e", "/proc/modules")),
    "apparmor": Need("AppArmor in the kernel", _in_guest("test", "-e", "/sys/module/apparmor")),
    "snapshot": Need("snapshots with the memory of guests", lambda lab: lab.snapshots),
}

# The ways to break a node that need such a thing, by their names in the catalogue of faults.
OF_BREAKAGES = {"overlay not loaded": "modules", "no module veth": "modules", "no VXLAN": "modules"}


def lacking(lab: Cluster, name: str) -> str:
    """Why a test that needs this cannot run in this lab; empty if it can."""
    need = NEEDS[name]
    return "" if need.met(lab) else f"needs {name}: the guests {lab.hardware.acceleration.place} have no {need.feature}"


def possible(lab: Cluster, breakages: Collection[str]) -> list[str]:
    """Those ways to break a node that work in this lab."""
    asked: dict[str, bool] = {}
    for name in {OF_BREAKAGES[one] for one in breakages if one in OF_BREAKAGES}:
        asked[name] = not lacking(lab, name)
    return [one for one in breakages if asked.get(OF_BREAKAGES.get(one, ""), True)]
