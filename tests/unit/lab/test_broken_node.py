"""What a guest is given so that it can have faults."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from virtual.guest import broken_node


@pytest.mark.commands(Path(sys.executable).name)
def test_a_guest_can_run_the_programs_with_what_is_brought(tmp_path: Path) -> None:
    """With nothing but Python: no fault is named, so nothing is broken."""
    with tarfile.open(fileobj=io.BytesIO(broken_node.packed())) as archive:
        archive.extractall(tmp_path, filter="data")
    argv = [sys.executable, "-S", "-B", "-m", "in_guest.prolog_with_faults", "hooks"]
    ended = subprocess.run(argv, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
