"""The package as it is installed from a wheel."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

import pytest

import moorage
from moorage.common.command import run

ROOT = Path(__file__).parents[2]
BUILD = "import setuptools.build_meta as backend, sys; backend.build_wheel(sys.argv[1])"


@pytest.fixture
def wheel(tmp_path: Path) -> zipfile.Path:
    """Built from a copy, because the build leaves files beside its sources."""
    source = tmp_path / "source"
    for name in ("plugin", "share"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run([sys.executable, "-c", BUILD, tmp_path], cwd=source, log=tmp_path / "log")
    return zipfile.Path(next(tmp_path.glob("*.whl")))


@pytest.mark.commands(sys.executable.rpartition("/")[2])
def test_wheel(wheel: zipfile.Path) -> None:
    information = next(entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info"))
    assert f"\nVersion: {moorage.__version__}\n" in (information / "METADATA").read_text()
    assert "moorage = moorage.cli:main" in (information / "entry_points.txt").read_text()
    assert (wheel / "moorage" / "py.typed").exists()
    data = information.name.replace(".dist-info", ".data")
    assert sorted(entry.name for entry in wheel.iterdir()) == sorted(["moorage", information.name, data])
    names = wheel.root.namelist()
    shared = {
        name.partition("/data/")[2]
        for name in names
        if name.startswith(f"{data}/data/share/") and not name.endswith("/")
    }
    assert shared == {str(file.relative_to(ROOT)) for file in (ROOT / "share").rglob("*") if file.is_file()}
    scripts = [path.relative_to(ROOT / "plugin") for path in (ROOT / "plugin/moorage").rglob("*.sh")]
    assert scripts
    assert [script for script in scripts if not (wheel / str(script)).exists()] == []
    assert (wheel / "moorage/common/codes.toml").exists()
