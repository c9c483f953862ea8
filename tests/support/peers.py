"""Processes of other users, in cgroups of the test's choice, that do what the test says."""

from __future__ import annotations

# What a socket asks for on first use lies where not every user may read.
import encodings.idna  # noqa: F401
import os
import pickle
import select
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Self

LIMIT = 30.0
_LENGTH = struct.Struct("I")


class Peer:
    """A process of `uid` that calls what it is told, one function after the other, until the test ends it."""

    def __init__(self, uid: int, cgroup: Path | None = None) -> None:
        calls, self._calls = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for unused in (self._calls, self._answers):
                os.close(unused)
            _serve(calls, answers, uid)
        os.close(calls)
        os.close(answers)
        self._collected = False
        # It is that user's from here on.
        assert self.result() == uid
        if cgroup:
            self.move(cgroup)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self._calls)
        os.close(self._answers)

    def move(self, cgroup: Path) -> None:
        (cgroup / "cgroup.procs").write_text(str(self.pid))

    def do(self, function: Callable[..., Any], *words: Any) -> Any:  # noqa: ANN401
        """What the function returns, or raises, when that process calls it; both must be known to pickle."""
        self.begin(function, *words)
        return self.result()

    def begin(self, function: Callable[..., Any], *words: Any) -> None:  # noqa: ANN401
        _send(self._calls, (function, words))

    def result(self, limit: float = LIMIT) -> Any:  # noqa: ANN401
        assert select.select([self._answers], [], [], limit)[0], "the other process does not answer"
        raised, value = _receive(self._answers)
        if raised:
            raise value
        return value

    @property
    def waiting(self) -> bool:
        """Whether it has not finished what it was told to do."""
        return not select.select([self._answers], [], [], 0)[0]

    def kill(self) -> None:
        if not self._collected:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._collected = True


def forked() -> int:
    """For `do`: have a child that holds all descriptors and sleeps."""
    child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    return child


def _serve(calls: int, answers: int, uid: int) -> NoReturn:
    try:
        if uid:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        _send(answers, (False, os.getuid()))
        while True:
            function, words = _receive(calls)
            try:
                answer = (False, function(*words))
            except Exception as error:
                answer = (True, error)
            _send(answers, answer)
    finally:
        os._exit(0)


def _send(pipe: int, content: Any) -> None:  # noqa: ANN401
    packet = pickle.dumps(content)
    os.write(pipe, _LENGTH.pack(len(packet)) + packet)


def _receive(pipe: int) -> Any:  # noqa: ANN401
    (length,) = _LENGTH.unpack(_read(pipe, _LENGTH.size))
    return pickle.loads(_read(pipe, length))  # noqa: S301 - the test's own other half sent it


def _read(pipe: int, length: int) -> bytes:
    content = b""
    while len(content) < length:
        chunk = os.read(pipe, length - len(content))
        if not chunk:
            raise EOFError
        content += chunk
    return content
