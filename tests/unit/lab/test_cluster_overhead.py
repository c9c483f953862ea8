"""How the lab reads what a cluster takes at rest."""

from __future__ import annotations

import pytest

from virtual.probes.cluster_overhead import Rest, asked_for, at_rest

SAID = """\
memory.stat:anon 900
memory.stat:kernel 100
./kubelet.slice/kubelet-kubepods.slice/memory.stat:anon 500
./kubelet.slice/kubelet-kubepods.slice/memory.stat:kernel 50"""


def test_what_is_not_of_pods_is_of_the_others() -> None:
    assert at_rest(SAID) == Rest(pods=550, others=450)


@pytest.mark.parametrize("said", [SAID.replace("anon", "file"), "\n".join(SAID.splitlines()[:2])])
def test_what_is_not_understood_is_no_figure(said: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        at_rest(said)


def test_requests_of_pods() -> None:
    def pod(*cpus: str | None) -> dict[str, object]:
        resources = [{"resources": {"requests": {"cpu": cpu}} if cpu else {}} for cpu in cpus]
        return {"spec": {"containers": resources}}

    assert asked_for([pod("200m", None), pod("1"), pod(None)]) == 1200
