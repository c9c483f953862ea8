"""A job's script as a child, and an end that is its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moorage.common.errors import UserError
from moorage.user.run.script import Script, end_as
from support.processes import ended


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield


@pytest.fixture
def run() -> Iterator[Callable[..., Script]]:
    with ExitStack() as handles:

        def started(text: str, *words: str) -> Script:
            script = Script(["sh", "-c", text, *words], {"PATH": os.environ["PATH"], "GIVEN": "yes"})
            handles.callback(os.close, script.handle)
            return script

        yield started


def code(script: Script) -> int | None:
    assert ended(script.process.pid)
    return script.code


@pytest.mark.commands("sh")
class TestScript:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9), ('[ "$1" = "a b" ]', 0)],
    )
    def test_code(self, run: Callable[..., Script], text: str, expected: int) -> None:
        assert code(run(text, "script", "a b")) == expected

    def test_it_has_none_while_it_runs(self, run: Callable[..., Script]) -> None:
        script = run("sleep 600")
        assert script.code is None
        script.signal(signal.SIGKILL)
        assert code(script) == -9

    def test_environment_is_what_is_given(self, run: Callable[..., Script]) -> None:
        assert code(run('[ "$GIVEN" = yes ] && [ -z "$HOME" ]')) == 0

    def test_signals_reach_it(self, run: Callable[..., Script], tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        script = run(f"trap 'exit 33' USR1; echo up >{tmp_path}/fifo; sleep 600 & wait")
        (tmp_path / "fifo").read_text()
        script.signal(signal.SIGUSR1)
        assert code(script) == 33

    def test_what_it_sends_to_its_group_is_its_own_affair(self, run: Callable[..., Script]) -> None:
        assert code(run("trap '' TERM; kill -TERM 0; exit 5")) == 5

    def test_a_signal_to_a_dead_one_is_nobodys(self, run: Callable[..., Script]) -> None:
        script = run("exit 0")
        assert code(script) == 0
        script.signal(signal.SIGTERM)


@pytest.mark.commands("script")
class TestNotStarted:
    @pytest.mark.parametrize(
        ("content", "mode", "said"),
        [("#!/no/such/interpreter\n", 0o755, "No such file"), ("#!/bin/sh\n", 0o644, "Permission denied")],
    )
    def test_it_says_why(self, tmp_path: Path, content: str, mode: int, said: str) -> None:
        script = tmp_path / "script"
        script.write_text(content)
        script.chmod(mode)
        with pytest.raises(UserError, match=said):
            Script([str(script)], {})


@pytest.mark.commands("fork")
@pytest.mark.parametrize("code", [0, 7, 255, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGUSR1, -signal.SIGSEGV])
def test_end_as(code: int) -> None:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        end_as(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == code
    assert not os.WCOREDUMP(status)
