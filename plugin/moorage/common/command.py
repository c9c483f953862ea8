"""The one way in which another program is run: to its end, within a time limit, with its output kept."""

from __future__ import annotations

import os
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Self

from moorage.common.errors import MoorageError

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_OUTPUT: Final = 16 << 20
READ_SIZE: Final = 1 << 16
LOG_TAIL: Final = 4096
LONGEST_SHOWN: Final = 200
# A process that waits inside the kernel, for a hung FUSE server say, does not die of SIGKILL (seen on 6.18).
DYING: Final = 5.0
WATCHING: Final = 0.5


@dataclass(frozen=True)
class Completed:
    """A command that ended as it should, and what it printed; bytes that are not UTF-8 appear as \\xNN."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str


class CommandError(MoorageError):
    """The command did not do what it was run for."""

    def __init__(self, argv: tuple[str, ...], reason: str, last_words: str = "") -> None:
        super().__init__(": ".join(filter(None, (_shown(argv), reason, last_words))))
        self.argv = argv
        self.reason = reason


class CommandNotFound(CommandError):
    """There is no such program."""


class CommandNotStarted(CommandError):
    """The program is there, but could not be started."""


class CommandFailed(CommandError):
    """It ran and ended badly; `status` is -N where signal N ended it, and None where it was killed from here."""

    def __init__(self, argv: tuple[str, ...], reason: str, status: int | None, stdout: str, stderr: str) -> None:
        super().__init__(argv, reason, _last_line(stderr) or _last_line(stdout))
        self.status = status
        self.stdout = stdout
        self.stderr = stderr


class CommandTimeout(CommandFailed):
    """It was killed at its time limit."""


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input: str | bytes | None = None,
    limit: float = 60.0,
    ok: Container[int] = (0,),
    log: Path | None = None,
    watch: Callable[[], None] | None = None,
) -> Completed:
    """Run `argv` and return what it printed, or raise a CommandError unless it ends with a code in `ok`.

    Its environment is `env` and, unless set there, a fixed PATH and locale: nothing of ours is inherited. Its standard
    input is `input`, never a terminal. With `log`, all it prints is appended to that file as it comes, and not kept.

    `watch` is called twice a second while it runs; if it raises, the command is killed.

    After `limit` seconds its process group is killed, and not asked first: what it held must be found again after a
    crash, too. A process that left the group (a daemon) is beyond this; nor is it waited for where it keeps the output
    open.
    """
    if isinstance(argv, str):
        raise TypeError("a command is a list of arguments, never one string")
    words = tuple(os.fspath(word) for word in argv)
    environment = {"PATH": PATH, "LC_ALL": "C.UTF-8", **(env or {})}
    with _Session(words, _start(words, environment, cwd, input, log), log) as session:
        code = session.follow(limit, watch)
    if code not in ok:
        raise session.failure(CommandFailed, _meaning(code), code)
    return Completed(words, code, _text(session.stdout), _text(session.stderr))


class Child:
    """A command as a child of the caller's event loop, with its output appended to a log.

    Its environment is as for `run`. When the block ends before the command does, its process group is killed.
    """

    def __init__(
        self, argv: Sequence[str | Path], *, env: Mapping[str, str], log: Path, cwd: Path | None = None
    ) -> None:
        self._argv = tuple(os.fspath(word) for word in argv)
        self._environment = {"PATH": PATH, "LC_ALL": "C.UTF-8", **env}
        self._cwd = cwd
        self._log = log

    def __enter__(self) -> Self:
        process = _start(self._argv, self._environment, self._cwd, None, self._log)
        self._session = _Session(self._argv, process, self._log)
        try:
            # It can be read once the command has ended.
            self.descriptor = os.pidfd_open(process.pid)
        except OSError:
            self._session.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
        self._session.__exit__()

    @property
    def ended(self) -> bool:
        return self._session.process.poll() is not None

    def check(self) -> None:
        """Raise a CommandFailed if the command has ended with another exit code than 0."""
        if code := self._session.process.returncode:
            raise self._session.failure(CommandFailed, _meaning(code), code)


@dataclass
class _Session:
    """A command in a session of its own; its process group does not outlast the block unless it ended by itself."""

    argv: tuple[str, ...]
    process: subprocess.Popen[bytes]
    log: Path | None
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            # Not reaped yet, so its number cannot be another group's by now. A setuid program is not ours to kill.
            with suppress(PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(DYING)
        for stream in filter(None, (self.process.stdout, self.process.stderr)):
            stream.close()

    def follow(self, limit: float, watch: Callable[[], None] | None = None) -> int:
        """Collect what it prints until it has ended and nothing is waiting to be read; return its exit code."""
        deadline = time.monotonic() + limit
        with ExitStack() as stack:
            end = os.pidfd_open(self.process.pid)
            stack.callback(os.close, end)
            events = stack.enter_context(selectors.DefaultSelector())
            events.register(end, selectors.EVENT_READ)
            for stream, kept in ((self.process.stdout, self.stdout), (self.process.stderr, self.stderr)):
                if stream:
                    events.register(stream, selectors.EVENT_READ, kept)
            while self.process.returncode is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self.failure(CommandTimeout, f"killed after {limit:g} s", None)
                if watch:
                    watch()
                self._take(events, min(left, WATCHING) if watch else left)
            while self._take(events, 0):
                pass
            return self.process.returncode

    def _take(self, events: selectors.BaseSelector, wait: float) -> bool:
        """Handle what happens within `wait` seconds; False if nothing did."""
        ready = events.select(wait)
        for key, _ in ready:
            if key.data is None:
                self.process.wait()
                events.unregister(key.fileobj)
            elif not self._read(key.fd, key.data):
                events.unregister(key.fileobj)
        return bool(ready)

    def _read(self, stream: int, kept: bytearray) -> bool:
        chunk = os.read(stream, READ_SIZE)
        kept += chunk
        if len(kept) > MOST_OUTPUT:
            raise self.failure(CommandFailed, f"killed: more than {MOST_OUTPUT >> 20} MiB of output", None)
        return bool(chunk)

    def failure(self, kind: type[CommandFailed], reason: str, code: int | None) -> CommandFailed:
        if self.log:
            return kind(self.argv, f"{reason}, see {self.log}", code, _tail(self.log), "")
        return kind(self.argv, reason, code, _text(self.stdout), _text(self.stderr))


def _start(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    cwd: Path | None,
    text: str | bytes | None,
    log: Path | None,
) -> subprocess.Popen[bytes]:
    try:
        with ExitStack() as files:
            return subprocess.Popen(
                argv,
                env=environment,
                cwd=cwd,
                start_new_session=True,
                stdin=files.enter_context(_memory(text)) if text else subprocess.DEVNULL,
                stdout=files.enter_context(log.open("ab")) if log else subprocess.PIPE,
                stderr=subprocess.STDOUT if log else subprocess.PIPE,
            )
    except OSError as error:
        # A missing interpreter or directory is reported by the kernel like a missing program.
        if error.filename == argv[0] and not shutil.which(argv[0], os.F_OK, environment["PATH"]):
            raise CommandNotFound(argv, "no such program") from error
        raise CommandNotStarted(argv, "cannot be started", f"{error.filename}: {error.strerror}") from error


def _memory(text: str | bytes) -> IO[bytes]:
    """A file that nobody has to feed, so that neither side can wait for the other."""
    file = os.fdopen(os.memfd_create("input"), "w+b")
    file.write(text.encode() if isinstance(text, str) else text)
    file.seek(0)
    return file


def _meaning(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"killed by {known.get(-code, f'signal {-code}')}"


def _text(output: bytes | bytearray) -> str:
    return output.decode(errors="backslashreplace")


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL))
        return _text(file.read())


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else ""


def _shown(argv: tuple[str, ...]) -> str:
    command = shlex.join(argv)
    return command if len(command) <= LONGEST_SHOWN else command[:LONGEST_SHOWN] + "..."
