from __future__ import annotations

from pathlib import Path

import pytest

from moorage.linux.cgroup import Usage


@pytest.mark.parametrize(
    ("files", "used"),
    [
        ({"memory.peak": "300", "memory.current": "1", "pids.peak": "12", "pids.current": "2"}, Usage(1.5, 300, 12)),
        ({"memory.current": "200", "pids.current": "2"}, Usage(1.5, 200, 2)),
        ({}, Usage(1.5, 0, 0)),
    ],
)
def test_of_newer_and_older_kernels(tmp_path: Path, files: dict[str, str], used: Usage) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n")
    for name, content in files.items():
        (tmp_path / name).write_text(content + "\n")
    assert Usage.of(tmp_path) == used


def test_for_people() -> None:
    assert str(Usage(22.04, 404 << 20, 63)) == "22.0 s of CPU, 404 MiB, 63 processes at most"


def test_a_tree_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Usage.of(tmp_path / "gone")
