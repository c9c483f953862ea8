"""A warden under a stand-in for systemd, and two tasks of one step of its job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cgroups import leaf
from support.node import USER, Manager, node, prepared
from support.peers import Peer


@pytest.fixture
def scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with node(monkeypatch) as scope:
        prepared()
        yield scope


@pytest.fixture
def manager(scope: Path) -> Iterator[Manager]:
    with Manager() as manager:
        yield manager


@pytest.fixture
def tasks(scope: Path) -> tuple[Path, Path]:
    return leaf(scope, "job_17", "step_0", "task_0"), leaf(scope, "job_17", "step_0", "task_1")


@pytest.fixture
def agent(tasks: tuple[Path, Path]) -> Iterator[Peer]:
    with Peer(USER, tasks[0]) as agent:
        yield agent


@pytest.fixture
def placeholder(tasks: tuple[Path, Path]) -> Iterator[Peer]:
    with Peer(USER, tasks[1]) as placeholder:
        yield placeholder
