"""Unit tests: no program is started unless the test names it or fakes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.common import command
from moorage.node import programs
from support.fakes import FakeCommand
from support.guard import Guard, enforced


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    directory = tmp_path / "fake-commands"
    directory.mkdir()
    return directory


@pytest.fixture(autouse=True)
def guard(request: pytest.FixtureRequest, fakes: Path) -> Iterator[Guard]:
    named = request.node.get_closest_marker("commands")
    with enforced(Guard(named.args if named else (), fakes)) as guard:
        yield guard
        guard.verify()


@pytest.fixture
def fake_command(fakes: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeCommand]:
    """Puts fakes first in PATH: `fake_command("podman", stdout="...", stderr="...", code=1).calls`."""
    monkeypatch.setenv("PATH", str(fakes), prepend=":")
    monkeypatch.setattr(command, "PATH", f"{fakes}:{command.PATH}")

    def fake(name: str, stdout: str = "", stderr: str = "", code: int = 0) -> FakeCommand:
        return FakeCommand(fakes, name, stdout, stderr, code)

    return fake


@pytest.fixture
def bare_node(fake_command: Callable[..., FakeCommand]) -> None:
    """None of the programs that happen to be installed here says its version, unless the test fakes it anew."""
    for name in (*programs.VERSIONED, "slurmd", "srun"):
        fake_command(name)
