"""Which tables of mounts are read to find those of FUSE that a job's processes see, and for how long."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.command import run
from moorage.common.deadline import Deadline
from moorage.linux import cgroup, fuse, mounts
from support.hung import hang
from support.namespaces import MOUNT, unshare
from support.node import JOB
from support.peers import Peer, forked

BINDS = 200


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Whose tables have been read."""
    found: list[int] = []

    def devices(task: int, deadline: Deadline) -> Iterator[str]:
        found.append(task)
        return real(task, deadline)

    real = fuse._devices
    monkeypatch.setattr(fuse, "_devices", devices)
    return found


@pytest.fixture
def sharing(tree: Path) -> Iterator[Peer]:
    """The first of three processes in a mount namespace of their own: many long lines, and one mount of FUSE."""
    place = JOB.run / ("d" * 200)
    place.mkdir(parents=True)
    with Peer(0, tree / "init") as first:
        first.do(unshare, MOUNT)
        first.do(run, ["mount", "--make-rprivate", "/"])
        for _ in range(BINDS):
            first.do(mounts.mount, "", str(JOB.run), place, 4096)
        first.do(hang, JOB.run)
        for _ in range(2):
            first.do(forked)
        yield first


def test_a_table_that_many_share_is_read_once(tree: Path, sharing: Peer, reads: list[int]) -> None:
    seen = fuse._seen_within(tree, Deadline(30))
    assert [mount.device for mount in mounts.table() if mount.device in seen] == []
    assert len(seen) == 1
    assert len(reads) == 1


def test_another_root_shows_another_part_of_it(tree: Path, sharing: Peer, reads: list[int]) -> None:
    sharing.do(os.chroot, "/proc")
    assert len(fuse._seen_within(tree, Deadline(30))) == 1
    assert len(reads) == 2


def test_it_ends_in_time(tree: Path, sharing: Peer, reads: list[int]) -> None:
    """The mount of FUSE is the last of all."""
    assert fuse._seen_within(tree, Deadline(0)) == set()
    assert len(reads) == 1


def test_processes_in_the_tree_alone_are_looked_at(tree: Path, sharing: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number may be another process's by the time that it is looked at."""
    with Peer(0) as outside:
        monkeypatch.setattr(cgroup, "threads", lambda _: [outside.pid])
        outside.do(unshare, MOUNT)
        outside.do(hang, JOB.run)
        assert fuse._seen_within(tree, Deadline(30)) == set()
        monkeypatch.setattr(cgroup, "threads", lambda _: [sharing.pid])
        assert len(fuse._seen_within(tree, Deadline(30))) == 1
