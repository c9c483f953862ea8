"""What the demonstration takes for a failure."""

from __future__ import annotations

import pytest

from virtual.demo import amiss
from virtual.probes.leftovers import Thing
from virtual.probes.processes import Seen

JOB = "/system.slice/slurmstepd.scope/job_17"
KUBELET, ETCD = (Seen(pid, 1, 1000, f"{JOB}/step_0/k8s", name) for pid, name in ((2, "kubelet"), (3, "etcd")))
ASTRAY = Seen(4, 1, 1000, "/user.slice", "conmon")


@pytest.mark.parametrize(
    ("processes", "left", "faults"),
    [
        ({KUBELET, ETCD}, [], []),
        (set(), [], ["no etcd was seen", "no kubelet was seen"]),
        ({KUBELET}, [], ["no etcd was seen"]),
        ({KUBELET, ETCD, ASTRAY}, [], ["conmon ran in /user.slice"]),
        ({KUBELET, ETCD}, [Thing("file", "/x")], ["something is left on the node"]),
    ],
)
def test_a_fault(processes: set[Seen], left: list[Thing], faults: list[str]) -> None:
    assert amiss(processes, JOB, left) == faults
