"""A job with all that it has on a node, and a systemctl that does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.common import command
from moorage.linux.process import Process
from moorage.node.config import schema
from moorage.root import rundir, scratch
from moorage.root.state import Phase, State
from support.cgroups import leaf
from support.fakes import FakeCommand
from support.node import JOB, LIMITS, node
from support.traces import PLACE, SIZE


@pytest.fixture
def scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with node(monkeypatch) as scope:
        PLACE.mkdir(parents=True, mode=0o700)
        yield scope


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommand:
    monkeypatch.setattr(command, "PATH", f"{tmp_path}:{command.PATH}")
    return FakeCommand(tmp_path, "systemctl")


@pytest.fixture
def tree(scope: Path) -> Path:
    """What a warden has delegated, with what Slurm leaves around it because of that."""
    leaf(scope, "job_17", "step_0", "task_0")
    tree = leaf(scope, "job_17", "step_0", "task_1") / "k8s"
    (tree / "init").mkdir(parents=True)
    return tree


@pytest.fixture
def moor(scope: Path, systemctl: FakeCommand, tree: Path) -> Callable[..., State]:
    """Makes all that a job has on a node."""

    def moor(kind: schema.ScratchKind = "tmpfs") -> State:
        wanted = schema.Scratch(path=PLACE, kind=kind, size=SIZE)
        begun = State.begin(JOB, LIMITS, scratch.plan(JOB, wanted))
        begun.save()
        rundir.prepare()
        rundir.make(JOB, schema.Run())
        scratch.make(JOB, wanted)
        return begun.changed(tree=tree, phase=Phase.DELEGATED, agent=Process(1, 1))

    return moor
