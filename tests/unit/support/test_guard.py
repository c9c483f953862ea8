"""The guard that keeps unit tests from starting programs."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from moorage.common.command import run
from support.fakes import FakeCommand
from support.guard import ForbiddenCommand, Guard

# Where the guard fails, exec would replace the test run itself: by a program that fails, so that it is seen.
WAYS: dict[str, Callable[[], object]] = {
    "run": lambda: run(["false"]),
    "subprocess.run": lambda: subprocess.run(["/bin/false"], check=False),
    "shell": lambda: subprocess.run("false", shell=True, check=False),  # noqa: S602
    "os.system": lambda: os.system("false"),  # noqa: S605
    "os.execv": lambda: os.execv("/bin/false", ["false"]),  # noqa: S606
    "os.execvpe": lambda: os.execvpe("false", ["false"], {}),  # noqa: S606
    "os.posix_spawn": lambda: os.posix_spawn("/bin/false", ["false"], {}),
    "os.spawnv": lambda: os.spawnv(os.P_WAIT, "/bin/false", ["false"]),  # noqa: S606
    "pty.spawn": lambda: pty.spawn(["/bin/false"]),
    "os.fork": lambda: os.fork() or os._exit(1),
}

CARELESS = """
import contextlib, os

def test_careless(tmp_path):
    with contextlib.suppress(BaseException):
        os.posix_spawn("false", ["false"], {})

def test_careful(tmp_path):
    assert tmp_path.name.startswith("test_careful")
"""


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_nothing_unnamed_is_started(way: Callable[[], object], guard: Guard) -> None:
    with pytest.raises(ForbiddenCommand):
        way()
    assert guard.violations
    guard.violations.clear()


def test_refusal_passes_through_handlers_of_exception(guard: Guard) -> None:
    def tolerant() -> None:
        with suppress(Exception):
            run(["false"])

    with pytest.raises(ForbiddenCommand):
        tolerant()
    guard.violations.clear()


def test_swallowed_refusal_still_fails_the_test(guard: Guard) -> None:
    with suppress(BaseException):
        run(["false"])
    with pytest.raises(AssertionError, match="tried to start false"):
        guard.verify()
    guard.violations.clear()


@pytest.mark.commands(Path(sys.executable).name)
def test_a_test_that_swallows_the_refusal_fails_at_its_end(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_careless.py").write_text(CARELESS)
    search = {"PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    words = f"-m pytest -p no:cacheprovider --rootdir {tmp_path} {tmp_path}".split()
    done = run([sys.executable, *words], env=search, ok=(1,))
    assert "2 passed, 1 error" in done.stdout
    assert "AssertionError: tried to start false" in done.stdout


@pytest.mark.commands("echo")
def test_named_command_is_started_and_no_other(guard: Guard) -> None:
    assert run(["echo", "moored"]).stdout == "moored\n"
    assert run(["/bin/echo", "moored"]).stdout == "moored\n"
    with pytest.raises(ForbiddenCommand):
        run(["false"])
    guard.violations.clear()


def test_real_command_behind_a_fake_stays_forbidden(fake_command: Callable[..., FakeCommand], guard: Guard) -> None:
    fake_command("false")
    run(["false"])
    with pytest.raises(ForbiddenCommand):
        run(["/bin/false"])
    guard.violations.clear()
