"""Plain kind in a Slurm job, in both forms and on both suites: it works, and does what is said of it."""

from __future__ import annotations

import pytest

from support.figures import Figures
from virtual.bench import baseline
from virtual.bench.baseline import Measured
from virtual.build.cache import CACHE
from virtual.cli import SUITES
from virtual.guest import builds
from virtual.guest.record import Request

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-references"
PORT = 22500


@pytest.mark.parametrize("suite", SUITES)
def test_both_forms_of_the_reference(suite: str, figures: Figures) -> None:
    """Ready node, kube-proxy, CoreDNS, a bound volume and a service answered by name, all in one job each."""
    builds.build(suite)
    with builds.own(DIRECTORY, Request(1, suite, PORT)) as lab:
        shell = lab.first.shell
        baseline.prepare(shell, warm=False)
        results = {form: baseline.measure(shell, form) for form in baseline.FORMS}
    for form, result in results.items():
        check(result)
        print(baseline.table(result))
        figures.add(f"plain kind in a job, {suite}, {form}, submission to ready", result.seconds, "s")
        figures.add(f"its processes outside the job, {suite}, {form}", len(result.outside), "")
        figures.add(f"its processes left after scancel, {suite}, {form}", len(result.left), "")
    assert results["warm"].seconds < results["cold"].seconds
    print(baseline.last_line(results))


def check(result: Measured) -> None:
    names = {seen.name for seen in result.during}
    assert {"kubelet", "etcd", "kube-apiserver", "coredns"} <= names
    # Why Moorage exists: all of the cluster runs beside the job, and outlives it.
    assert {"kubelet", "etcd"} <= {seen.name for seen in result.outside}
    assert {"kubelet", "etcd"} <= {seen.name for seen in result.left}
