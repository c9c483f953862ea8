"""What a job has of its node, what pods are offered of it, and when it is too little."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.common.errors import UserError
from moorage.user.cluster import node_resources
from moorage.user.cluster.node_resources import GIB, MIB, Least, Share

WHOLE = Share(64, 512 * GIB, 512 * GIB)
LEAST = Least(2, 3 * GIB)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of 8 GiB whose step has no limit; what lies above the root is no cgroup."""
    (tmp_path / "memory.max").write_text("1\n")
    monkeypatch.setattr(node_resources, "ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
    place = tmp_path / "job_17" / "step_0" / "task_1" / "k8s"
    place.mkdir(parents=True)
    (tmp_path / "job_17" / "memory.max").write_text(f"{8 * GIB}\n")
    (tmp_path / "job_17" / "step_0" / "memory.max").write_text("max\n")
    (place / "memory.max").write_text(f"{8 * GIB - 128 * MIB}\n")
    return place


@pytest.mark.parametrize(
    ("environ", "cpus"),
    [({}, 4), ({"SLURM_CPUS_ON_NODE": "2"}, 2), ({"SLURM_CPUS_ON_NODE": "16"}, 4), ({"SLURM_CPUS_ON_NODE": "x"}, 4)],
)
def test_of_job(tree: Path, environ: dict[str, str], cpus: int) -> None:
    assert node_resources.of_job(tree, WHOLE, environ) == Share(cpus, 8 * GIB, 8 * GIB - 128 * MIB)


def test_without_limits_it_is_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_resources, "ROOT", tmp_path)
    assert node_resources.of_job(tmp_path / "k8s", WHOLE, {}).memory == WHOLE.memory
    huge = replace(WHOLE, usable=448 * GIB)
    assert node_resources.of_job(tmp_path / "k8s", huge, {}).usable == huge.usable


def test_the_machine_is_this_one() -> None:
    here = node_resources.machine()
    assert here.cpus == os.cpu_count()
    assert here.memory == pytest.approx(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), rel=0.05)


@pytest.mark.parametrize(
    ("said", "usable"), [("Hugetlb:         1048576 kB\n", 7 * GIB), ("Hugetlb: 0 kB\n", 8 * GIB), ("", 8 * GIB)]
)
def test_huge_pages_are_nobodys(monkeypatch: pytest.MonkeyPatch, said: str, usable: int) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: f"MemTotal: 8388608 kB\nHugePages_Total: 2\n{said}")
    assert (node_resources.machine().memory, node_resources.machine().usable) == (8 * GIB, usable)


@pytest.mark.parametrize(
    ("whole", "job", "reserve", "cpus", "memory"),
    [
        (WHOLE, Share(4, 8 * GIB, 8 * GIB - 128 * MIB), 512 * MIB, 3900, 8 * GIB - 640 * MIB),
        (WHOLE, WHOLE, 0, 63900, 512 * GIB),
        (Share(2, 8 * GIB, 8 * GIB), Share(2, 3 * GIB, 3 * GIB), GIB, 1900, 2 * GIB),
        # With huge pages.
        (Share(64, 512 * GIB, 448 * GIB), Share(4, 8 * GIB, 8 * GIB), 512 * MIB, 3900, 8 * GIB - 512 * MIB),
        (Share(2, 8 * GIB, 2 * GIB), Share(2, 4 * GIB, 4 * GIB), 512 * MIB, 1900, 2 * GIB),
    ],
)
def test_pods_are_offered_the_share_less_the_reserve(
    whole: Share, job: Share, reserve: int, cpus: int, memory: int
) -> None:
    kept = node_resources.reserved(whole, job, reserve)
    assert kept["cpu"].endswith("m")
    assert kept["memory"].endswith("Ki")
    assert whole.cpus * 1000 - int(kept["cpu"][:-1]) == cpus
    assert whole.usable - int(kept["memory"][:-2]) * 1024 == memory


@pytest.mark.parametrize("job", [Share(2, 3 * GIB, 2 * GIB), WHOLE])
def test_enough(job: Share) -> None:
    node_resources.check(job, LEAST)


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (
            Share(2, 2 * GIB, GIB),
            "this job has 2 CPUs and 2G on its node, and a cluster needs 2 CPUs and 3G: add --mem=3G",
        ),
        (
            Share(1, 4 * GIB, GIB),
            "this job has 1 CPU and 4G on its node, and a cluster needs 2 CPUs and 3G: add --cpus-per-task=2",
        ),
        (
            Share(1, 1500 * MIB, GIB),
            "this job has 1 CPU and 1500M on its node, and a cluster needs 2 CPUs and 3G:"
            " add --cpus-per-task=2 --mem=3G",
        ),
    ],
)
def test_too_little(job: Share, line: str) -> None:
    with pytest.raises(UserError) as refused:
        node_resources.check(job, LEAST)
    assert str(refused.value) == line
