from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage.common.errors import MoorageError, UserError
from moorage.common.job import Job
from moorage.linux import cgroup
from moorage.linux.cgroup import Leaf
from moorage.linux.process import Process
from moorage.node.config.schema import Config
from moorage.node.config.values import GIB, MIB
from moorage.root.state import Limits
from moorage.root.warden import delegation
from moorage.root.warden.delegation import LEAST_MEMORY, bound, enable, memory_limit

JOB = Job(17, 0, 1000, 1000, "alice", "n1", frozenset({"job_17"}))


@pytest.mark.parametrize(
    ("around", "reserve", "limit"),
    [
        ([], 128 * MIB, None),
        ([None, None], 128 * MIB, None),
        ([GIB], 128 * MIB, GIB - 128 * MIB),
        ([None, 2 * GIB, None, GIB, 4 * GIB], 128 * MIB, GIB - 128 * MIB),
        ([160 * MIB], 128 * MIB, 32 * MIB),
        ([GIB], 0, GIB),
    ],
)
def test_memory(around: list[int | None], reserve: int, limit: int | None) -> None:
    assert memory_limit(around, reserve) == limit


@pytest.mark.parametrize("job", [0, 1, 128 * MIB, 160 * MIB - 1])
def test_too_little_memory_is_the_users_to_mend(job: int) -> None:
    with pytest.raises(UserError, match=r"128 MiB are kept .*: ask for at least 160 MiB \(--mem\)"):
        memory_limit([job, None], 128 * MIB)
    assert LEAST_MEMORY == 32 * MIB


def test_the_least_limit_of_all_above_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    leaf = Leaf(tmp_path / "slice/slurmstepd.scope/job_17/step_0/user/task_1")
    leaf.path.mkdir(parents=True)
    for directory, name, value in (
        (leaf.path, "memory.max", "max"),
        (leaf.user, "memory.max", 3 * GIB),
        (leaf.user, "memory.high", 2 * GIB),
        (leaf.job, "memory.max", 3 * GIB),
        (tmp_path / "slice", "memory.max", 64 * GIB),
    ):
        (directory / name).write_text(f"{value}\n")
    (tmp_path.parent / "memory.max").write_text("1")
    assert memory_limit(delegation._memory_limits(leaf), MIB) == 2 * GIB - MIB


def test_limits_are_written(tmp_path: Path) -> None:
    names = ["memory.max", "pids.max", "cgroup.max.descendants", "cgroup.max.depth"]
    for name in names:
        (tmp_path / name).touch()
    bound(tmp_path, 5 * GIB, Limits.of(Config()))
    assert [(tmp_path / name).read_text() for name in names] == [str(5 * GIB), "16384", "4096", "32"]


def test_no_memory_limit_where_the_job_has_none(tmp_path: Path) -> None:
    for name in ("pids.max", "cgroup.max.descendants", "cgroup.max.depth"):
        (tmp_path / name).touch()
    bound(tmp_path, None, Limits.of(Config()))
    assert not (tmp_path / "memory.max").exists()


def test_controllers_are_enabled_from_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, object]] = []
    monkeypatch.setattr(delegation, "put", lambda file, value: written.append((str(file.relative_to(tmp_path)), value)))
    enable(["cpu", "pids"], [tmp_path / "a", tmp_path / "a/b"])
    assert written == [("a/cgroup.subtree_control", "+cpu +pids"), ("a/b/cgroup.subtree_control", "+cpu +pids")]


@pytest.mark.parametrize(
    ("there", "error", "said"),
    [
        ("cpu memory", FileNotFoundError(2, "No such file"), "has no controller cpuset, pids: the cgroups above it"),
        ("cpuset cpu memory pids", OSError(16, "busy"), "still holds processes"),
        ("cpuset cpu memory pids", OSError(95, "Not supported"), "Not supported"),
    ],
)
def test_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, error: OSError, said: str) -> None:
    def refuse(*_: object) -> None:
        raise error

    (tmp_path / "cgroup.controllers").write_text(there)
    monkeypatch.setattr(delegation, "put", refuse)
    with pytest.raises(MoorageError, match=f"^{tmp_path}: {said}"):
        enable(delegation.CONTROLLERS, [tmp_path])


def test_what_is_given_away_are_no_limits() -> None:
    assert not [name for name in delegation.DELEGATED if name.endswith((".max", ".high", ".min", ".low", ".weight"))]


def test_nothing_lies_between_the_look_at_the_placeholder_and_its_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may become another's at any moment."""
    done: list[object] = []

    class Lender(Process):
        @contextmanager
        def held(self) -> Iterator[int]:
            done.append("held")
            yield -1

    def memory_limits(_: Leaf) -> list[int | None]:
        done.append("limits")
        return []

    def put(file: Path, value: object) -> None:
        done.append((file.name, value))
        raise InterruptedError

    monkeypatch.setattr(delegation, "_memory_limits", memory_limits)
    monkeypatch.setattr(delegation, "put", put)
    with pytest.raises(InterruptedError):
        delegation.delegate(Leaf(Path("/a")), Leaf(Path("/b")), Lender(7, 1), JOB, Limits.of(Config()))
    assert done == ["limits", "held", ("cgroup.procs", 7)]
