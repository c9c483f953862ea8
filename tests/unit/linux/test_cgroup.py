from __future__ import annotations

from pathlib import Path

import pytest

from moorage.linux import cgroup
from moorage.linux.cgroup import Leaf, NoTask, leaf, number

NAMES = frozenset({"job_17", "s5K1KKYAYG5D00"})
SCOPE = "/system.slice/slurmstepd.scope"


@pytest.mark.parametrize(
    "path",
    [
        f"{SCOPE}/job_17/step_0/user/task_0",
        f"{SCOPE}/job_17/step_batch/user/task_0",
        f"{SCOPE}/job_17/step_interactive/user/task_0",
        f"{SCOPE}/s5K1KKYAYG5D00/step_12/user/task_123",
        "/slurmstepd.scope/job_17/step_0/user/task_0",
        "/a/b/c/node1_slurmstepd.scope/job_17/step_0/user/task_0",
    ],
)
def test_tasks(path: str) -> None:
    found = leaf(path, NAMES)
    assert found.path == Path(f"/sys/fs/cgroup{path}")
    assert [found.user.name, found.path.parent] == ["user", found.user]
    assert found.chain[0].name.endswith("slurmstepd.scope")
    assert found.chain == [found.job.parent, found.job, found.step, found.user, found.path]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/user.slice",
        "job_17/step_0/user/task_0",
        "/job_17/step_0/user/task_0",
        f"{SCOPE}/job_18/step_0/user/task_0",
        f"{SCOPE}/job_170/step_0/user/task_0",
        f"{SCOPE}/job_1/step_0/user/task_0",
        f"{SCOPE}/S5K1KKYAYG5D00/step_0/user/task_0",
        f"{SCOPE}/job_17/step_extern/user/task_0",
        f"{SCOPE}/job_17/step_0/user/task_special",
        f"{SCOPE}/job_17/step_0/user/task_",
        f"{SCOPE}/job_17/step_/user/task_0",
        f"{SCOPE}/job_17/step_0/user/task_0 (deleted)",
        f"{SCOPE}/job_17/step_0/user/task_0\n",
        f"{SCOPE}/job_17/step_0/user/task_²",
        f"{SCOPE}/job_17/step_0/slurm",
        f"{SCOPE}/job_17/step_0/slurm/task_0",
        f"{SCOPE}/job_17/step_0/user",
        f"{SCOPE}/job_17/step_0/user/task_1/k8s/init",
        f"{SCOPE}/job_17/step_0/user/task_1/k8s/slurmstepd.scope/job_17/step_0/user/task_0/x",
        f"/../..{SCOPE}/job_17/step_0/user/task_0",
        f"{SCOPE}/../{SCOPE}/job_17/step_0/user/task_0",
        "/user.slice/slurmstepd.scope.mine/job_17/step_0/user/task_0",
    ],
)
def test_what_is_none(path: str) -> None:
    with pytest.raises(NoTask, match="no task of this job"):
        leaf(path, NAMES)


@pytest.mark.parametrize(("content", "found"), [("17\n", 17), ("0\n", 0), ("max\n", None), ("", None), (None, None)])
def test_numbers(tmp_path: Path, content: str | None, found: int | None) -> None:
    if content is not None:
        (tmp_path / "memory.max").write_text(content)
    assert number(tmp_path / "memory.max") == found


def test_values_go_only_into_files_of_the_kernel(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cgroup.put(tmp_path / "memory.max", 1)
    assert not (tmp_path / "memory.max").exists()


def test_who_is_stuck_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "name", lambda pid: f"p{pid}")
    stuck = cgroup.Stuck(Path("/t"), [1, 2, 3, 4, 5, 6])
    assert str(stuck) == (
        "/t still holds 6 killed processes, which hang in the kernel: 1 (p1), 2 (p2), 3 (p3), 4 (p4), 5 (p5)"
    )


def test_two_tasks_are_told_apart() -> None:
    assert Leaf(Path("/a/task_0")) != Leaf(Path("/a/task_1"))
