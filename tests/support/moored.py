"""A job as its Prolog leaves it, with a podman that does as it is told, and the keeper of its tree."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import pytest

import moorage
from moorage.common.description import Mooring
from moorage.common.podman import Places
from moorage.linux.cgroup import Leaf
from moorage.linux.process import Process
from moorage.root import podman_conf
from moorage.root.podman_conf import Tools
from moorage.root.warden import delegation
from moorage.user import messages
from moorage.user.agent import delegated_cgroup
from moorage.user.agent.keeper import keep
from moorage.user.channel import Receiver, Sender
from moorage.user.messages import Delegated, KeeperCommand, KeeperEvent, Ready
from support.cgroups import leaf
from support.described import described
from support.node import JOB, LIMITS, USER

# Nothing of this is waited for where all is well, and a machine may have much else to do.
LIMIT = 60.0
PLACES = Places(JOB.run)
WAITS = {"agents": 30.0, "podman": 30.0, "kill": 10.0, "others": 0.0}
PACKAGE = Path(moorage.__file__).parent
PACKAGES = JOB.run / "python"
SHELL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# `podman sh -c ...` runs a shell, where a real one would run a container.
_PODMAN = """\
#!/bin/sh
case $1 in
network)
    echo "$@" >>"$XDG_RUNTIME_DIR/networks"
    exit
    ;;
unshare)
    shift
    if [ "$1" = --rootless-netns ]; then
        shift
        exec unshare --user --map-root-user --net "$@"
    fi
    mkdir -p "$XDG_RUNTIME_DIR/libpod/tmp"
    echo $$ >"$XDG_RUNTIME_DIR/libpod/tmp/pause.pid"
    exec "$@"
    ;;
broken)
    echo "podman is broken" >&2
    exit 1
    ;;
esac
exec "$@"
"""


@cache
def interpreter() -> Path:
    """A Python that other users can start, too: the one of the tests may be in root's home."""
    code = "import sys; sys.exit(sys.version_info < (3, 11))"
    for found in (sys.executable, shutil.which("python3", path=SHELL_PATH)):
        if found:
            try:
                subprocess.run([found, "-IS", "-c", code], check=True, user=USER, group=USER, extra_groups=[])
            except (OSError, subprocess.SubprocessError):
                continue
            return Path(found)
    pytest.skip("needs a Python of 3.11 or newer that every user can start")


def moored(fields: Mapping[str, object] | None = None) -> Mooring:
    """The content of the run directory, which is there, and empty."""
    for place, owner, mode in (("etc", 0, 0o755), ("bin", 0, 0o755), ("user", USER, 0o700), ("scratch", USER, 0o700)):
        (JOB.run / place).mkdir()
        (JOB.run / place).chmod(mode)
        os.chown(JOB.run / place, owner, owner)
    shutil.copytree(_compiled(), PACKAGES)
    program = _program(JOB.run / "bin" / "the-real-podman", _PODMAN)
    tools = Tools(program, Path("/usr/bin/crun"), "pasta", python=interpreter())
    for name, (text, mode) in podman_conf.files(JOB, tools).items():
        (JOB.run / name).write_text(text.replace(str(PACKAGE.parent), str(PACKAGES)))
        (JOB.run / name).chmod(mode)
    own = {"job": JOB.id, "node": "node1", "podman": str(program), "wait": WAITS}
    (JOB.run / "job.json").write_text(json.dumps(described(**{**own, **(fields or {})})))
    return Mooring.load(JOB.id)


@cache
def _compiled() -> Path:
    """The package as if installed: a checkout is compiled at each start, and may be where only its owner can read."""
    place = Path(tempfile.mkdtemp(prefix="moorage-package-"))
    atexit.register(shutil.rmtree, place)
    place.chmod(0o755)
    shutil.copytree(PACKAGE, place / "moorage", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([interpreter(), "-ISm", "compileall", "-qq", place], check=True)
    return place


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


PR_SET_DUMPABLE = 4
# One kind of the events that a keeper sends.
Expected = TypeVar("Expected", bound=KeeperEvent)


class Keeper:
    """The keeper in a process of its own, which does something first, is the user's, and is told where its tree is."""

    def __init__(
        self, mooring: Mooring, scope: Path, owner: int = USER, first: Callable[[], object] = lambda: None
    ) -> None:
        self.connection, theirs = socket.socketpair()
        self._receiver = Receiver()
        self.events: list[KeeperEvent] = []
        tasks = [leaf(scope, "job_17", "step_0", name) for name in ("task_0", "task_1")]
        self.pid = os.fork()
        if self.pid == 0:
            self.connection.close()
            first()
            _become_keeper(mooring, theirs, owner)
        theirs.close()
        delegation.delegate(Leaf(tasks[0]), Leaf(tasks[1]), Process.of(self.pid), JOB, LIMITS)
        self.tree = tasks[1] / "k8s"
        self._collected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self.wait()

    def start(self) -> Self:
        self.delegate()
        self.expect(Ready)
        return self

    def delegate(self) -> None:
        self.command(Delegated(str(self.tree)))

    def command(self, command: KeeperCommand) -> None:
        Sender(self.connection.sendall).send(messages.encode_command(command))

    def expect(self, kind: type[Expected], limit: float = LIMIT) -> Expected:
        """The next event of this kind; those before it are in `events`."""
        deadline = time.monotonic() + limit
        while not (found := [one for one in self.events if isinstance(one, kind)]):
            left = deadline - time.monotonic()
            assert left > 0, f"no {kind}, but {self.events}"
            assert select.select([self.connection], [], [], left)[0], f"no {kind}, but {self.events}"
            chunk = self.connection.recv(1 << 16)
            assert chunk, f"the keeper has ended after {self.events}"
            self._receive(chunk)
        self.events.remove(found[0])
        return found[0]

    def rest(self) -> list[KeeperEvent]:
        """All events that nobody has asked for, up to the keeper's end."""
        while chunk := self.connection.recv(1 << 16):
            self._receive(chunk)
        return self.events

    def _receive(self, chunk: bytes) -> None:
        for message in self._receiver.receive(chunk):
            assert isinstance(message, dict), message
            event = messages.decode_event(message)
            assert event, message
            self.events.append(event)

    def wait(self, limit: float = LIMIT) -> int:
        """Its exit code."""
        if not self._collected:
            handle = os.pidfd_open(self.pid)
            assert select.select([handle], [], [], limit)[0], "the keeper does not end"
            os.close(handle)
            self._collected = True
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


def _become_keeper(mooring: Mooring, agent: socket.socket, owner: int) -> NoReturn:
    code = 99
    try:
        # This machine may have no controllers for the hierarchy that the test uses.
        delegated_cgroup.NEEDED = frozenset()  # type: ignore[misc]
        os.setgroups([])
        os.setresgid(owner, owner, owner)
        os.setresuid(owner, owner, owner)
        # Only a program that was started as the user may write its own files in /proc, as the real keeper was.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        code = keep(mooring, agent)
    finally:
        os._exit(code)


class Caller(subprocess.Popen[bytes]):
    """It does not outlive a test that has failed."""

    def __exit__(self, *raised: Any) -> None:  # noqa: ANN401
        if raised[0]:
            self.kill()
        super().__exit__(*raised)


def call(*words: str | bytes, **options: Any) -> Caller:  # noqa: ANN401
    """The job's own `podman`, called by its user from outside the tree."""
    settings: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "user": USER,
        "group": USER,
        "extra_groups": [],
        "cwd": "/",
        "env": {"PATH": SHELL_PATH, "HOME": "/home/alice"},
    }
    return Caller([JOB.run / "bin" / "podman", *words], **{**settings, **options})


def called(*words: str | bytes, **options: Any) -> tuple[int, str, str]:  # noqa: ANN401
    """How that ended, and what it printed."""
    with call(*words, **options) as process:
        out, err = process.communicate(timeout=LIMIT)
    return process.returncode, (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace")


def lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """What it prints, as it comes."""
    assert process.stdout
    rest = b""
    while select.select([process.stdout], [], [], LIMIT)[0] and (chunk := os.read(process.stdout.fileno(), 1 << 16)):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() for line in whole)
