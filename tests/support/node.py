"""A node of a cluster, as far as root's parts see one: its directories, Slurm's cgroups, a job, a service manager."""

from __future__ import annotations

import array
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, Self

import pytest

from moorage.common.command import run
from moorage.common.job import Job
from moorage.linux.cgroup import put
from moorage.root.state import Limits, State, load
from moorage.root.warden import delegation, warden
from support.cgroups import ROOT, slurm_scope
from support.namespaces import MOUNT, fresh

USER = 12345
OTHER = 23456
JOB = Job(17, 0, USER, USER, "alice", "node1", frozenset({"job_17", "s5K1KKYAYG5D00"}))
LIMITS = Limits(
    memory_reserve=0, processes=500, cgroups=50, depth=9, lend_wait=1.0, kill_wait=5.0, epilog=30.0
)  # fmt: skip


@contextmanager
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Empty /run and /var/lib, and Slurm's scope, all of which exist for this test alone."""
    with fresh(MOUNT):
        for place in ("/run", "/var/lib"):
            run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", place])
        with slurm_scope() as scope:
            _offer_only_what_is_here(monkeypatch)
            yield scope


def prepared(job: Job = JOB, limits: Limits = LIMITS) -> State:
    """As a Prolog leaves it."""
    state = State.begin(job, limits)
    state.save()
    job.run.mkdir(mode=0o711, parents=True)
    job.log.touch(mode=0o644)
    return state


def saved(job: int = JOB.id) -> State:
    state = load(job)
    assert state
    return state


def _offer_only_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose controllers serve the older hierarchy has few or none for this one."""
    here = (ROOT / "cgroup.controllers").read_text().split()
    monkeypatch.setattr(delegation, "CONTROLLERS", [one for one in delegation.CONTROLLERS if one in here] or here)
    if "pids" not in here:
        monkeypatch.setattr(delegation, "put", _put_where_it_is)


def _put_where_it_is(file: Path, value: object) -> None:
    if file.name != "pids.max":
        put(file, value)


class Manager:
    """Does for a warden what systemd does: starts it, waits until it is ready, keeps its descriptor."""

    def __init__(self, job: int = JOB.id) -> None:
        self.job = job
        self.pid = 0
        self.kept: list[int] = []
        self.address = Path(f"/run/notify-{job}")
        self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ear.bind(os.fspath(self.address))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.ear.close()
        self.address.unlink()

    def start(self) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            self.become_warden()
        while "READY=1" not in self._news():
            pass

    def kill(self) -> None:
        """Only the process; what is kept stays so."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def stop(self) -> None:
        if self.pid:
            self.kill()
        self.let_go()
        self.pid = 0

    def let_go(self) -> None:
        """Of what is kept, as when it gives up a warden that does not die."""
        while self.kept:
            os.close(self.kept.pop())

    def _news(self, limit: float = 10.0) -> list[str]:
        assert select.select([self.ear], [], [], limit)[0], "the warden did not become ready"
        text, ancillary, _, _ = self.ear.recvmsg(4096, socket.CMSG_SPACE(4))
        for _, _, content in ancillary:
            numbers = list(array.array("i", content))
            # The same again is not kept twice.
            for again in numbers if self.kept else []:
                os.close(again)
            self.kept = self.kept or numbers
        return text.decode().splitlines()

    def become_warden(self) -> NoReturn:
        try:
            os.environ["NOTIFY_SOCKET"] = str(self.address)
            if self.kept:
                os.dup2(self.kept[0], 3)
                os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "lock"}
            for descriptor in self.kept:
                if descriptor != 3:
                    os.close(descriptor)
            warden.main([str(self.job)])
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(1)
