"""What keeps a unit test from starting a program it does not name."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class ForbiddenCommand(BaseException):
    """Not an Exception, so that no handler in the code under test takes it for an ordinary failure."""


class Guard:
    """Knows what may be started, and remembers what was tried besides."""

    def __init__(self, allowed: Iterable[str], fakes: Path) -> None:
        self.allowed = frozenset(allowed)
        self.fakes = fakes
        self.violations: list[str] = []

    def check(self, program: str, environment: Mapping[Any, Any] | None) -> None:
        if Path(program).name not in self.allowed and not self._is_fake(program, environment):
            self.violations.append(program)
            raise ForbiddenCommand(f"{program}: a unit test starts only what it names: @pytest.mark.commands(...)")

    def _is_fake(self, program: str, environment: Mapping[Any, Any] | None) -> bool:
        found = shutil.which(program, path=os.pathsep.join(os.get_exec_path(environment)))
        return found is not None and Path(found).parent == self.fakes

    def verify(self) -> None:
        """Fail even where the code under test swallowed the refusal, but as any test fails.

        Out of a fixture's end, what is no Exception would keep pytest from ending the others, and the tests to come
        would be given this one's temporary directory.
        """
        if self.violations:
            raise AssertionError(f"tried to start {', '.join(self.violations)}")


_active: list[Guard] = []


@contextmanager
def enforced(guard: Guard) -> Iterator[Guard]:
    _active.append(guard)
    try:
        yield guard
    finally:
        _active.pop()


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _active and (attempt := _attempt(event, arguments)):
        _active[-1].check(*attempt)


def _attempt(event: str, arguments: tuple[Any, ...]) -> tuple[str, Mapping[Any, Any] | None] | None:
    match event, arguments:
        case "subprocess.Popen", (program, _, _, environment):
            return os.fsdecode(program), environment
        case (("os.exec" | "os.posix_spawn"), (program, _, environment)):
            return os.fsdecode(program), environment or None
        case "os.system", _:
            return "sh", None
        case (("os.fork" | "os.forkpty"), _):
            return "fork", None
        case _:
            return None


# An audit hook sees every way to start a program, also through names imported earlier; it can never be removed.
sys.addaudithook(_audit)
