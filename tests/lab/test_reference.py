"""Plain kind in a Slurm job works in the lab; what Moorage is measured against does what it is said to do."""

from __future__ import annotations

import pytest

from support.figures import Figures
from virtual import baseline
from virtual.census import outside
from virtual.cluster import Cluster


@pytest.mark.parametrize("lab", ["trixie"], indirect=True)
def test_a_plain_cluster_works_but_not_inside_its_job(lab: Cluster, figures: Figures) -> None:
    """Ready node, kube-proxy, CoreDNS, a bound volume and a service answered by name, all in one job."""
    with lab.others_waiting():
        baseline.prepare(lab.first.shell, warm=False)
        result = baseline.measure(lab.first.shell, "cold")
    print(baseline.table(result))
    figures.add("plain kind in a job, cold, submission to ready", result.seconds, "s")
    names = {seen.name for seen in result.during}
    assert {"kubelet", "etcd", "kube-apiserver", "coredns"} <= names
    # Why Moorage exists: all of the cluster runs beside the job, and outlives it.
    assert {"kubelet", "etcd"} <= {seen.name for seen in outside(result.during, result.cgroup)}
    assert {"kubelet", "etcd"} <= {seen.name for seen in result.left}
