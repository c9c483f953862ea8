"""`run` where the kernel itself is in the way."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from moorage.common import command
from moorage.common.command import CommandTimeout, run
from support.hung import hung_mount
from support.processes import ended


@pytest.mark.usefixtures("fresh_namespaces")
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_limit_holds_for_a_process_that_no_signal_can_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "DYING", 1.0)
    before = {child.pid for child in psutil.Process().children()}
    with hung_mount(tmp_path):
        started = time.monotonic()
        with pytest.raises(CommandTimeout):
            run(["stat", tmp_path / "file"], limit=0.5)
        assert time.monotonic() - started < 5
        (stuck,) = (child.pid for child in psutil.Process().children() if child.pid not in before)
        assert not ended(stuck, limit=0.5), "it should have survived SIGKILL, or this shows nothing"
    assert ended(stuck)


def test_a_command_is_killed_when_its_watch_raises() -> None:
    seen: list[float] = []

    def watch() -> None:
        seen.append(time.monotonic())
        if len(seen) == 3:
            raise ZeroDivisionError

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        run(["sleep", "60"], watch=watch)
    assert 0.9 < time.monotonic() - began < 30
    assert run(["true"], watch=lambda: None).code == 0
