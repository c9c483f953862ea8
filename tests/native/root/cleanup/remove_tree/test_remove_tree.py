"""The removal of trees that users have built to hinder it."""

from __future__ import annotations

import os
import socket
import stat
import time
from pathlib import Path

import pytest

from moorage.common.command import run
from moorage.common.deadline import Deadline
from moorage.linux import mounts
from moorage.linux.beneath import entered, opened
from moorage.root.cleanup import remove_tree
from moorage.root.cleanup.remove_tree import MOST_NAMED
from support.hung import hung_mount
from support.trees import make_deep, removed


def names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def test_all_kinds_of_files(tree: Path) -> None:
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/file").write_text("content")
    (tree / "new\nline").touch()
    Path(os.fsdecode(os.fsencode(tree) + b"/\xff\xfe")).touch()
    (tree / "-rf").mkdir()
    os.mkfifo(tree / "pipe")
    os.mknod(tree / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(tree / "s"))
    assert removed(tree) == {}
    assert not tree.exists()


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo, lambda path: path.symlink_to("/etc")])
def test_what_is_no_directory_at_all(place: Path, make: object) -> None:
    make(place / "entry")  # type: ignore[operator]
    assert removed(place / "entry") == {}
    assert not os.path.lexists(place / "entry")


def test_what_is_not_there(place: Path) -> None:
    assert removed(place / "entry") == {}


def test_links_lead_nowhere(place: Path, tree: Path) -> None:
    outside = place / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    before = (outside / "file").stat(), outside.stat()
    (tree / "directory").symlink_to(outside)
    (tree / "up").symlink_to("..")
    (tree / "self").symlink_to("self")
    (tree / "inner").mkdir()
    (tree / "inner/file").symlink_to(outside / "file")
    (tree / "hard").hardlink_to(outside / "file")
    assert removed(tree) == {}
    after = (outside / "file").stat(), outside.stat()
    for one, other in zip(before, after, strict=True):
        assert (one.st_uid, one.st_mode, one.st_mtime) == (other.st_uid, other.st_mode, other.st_mtime)
    assert (outside / "file").read_text() == "mine"


def test_deeper_than_any_path_is_long(tree: Path) -> None:
    make_deep(tree, "d" * 255, 1100)
    assert removed(tree) == {}
    assert not tree.exists()


def test_directories_without_permissions(tree: Path) -> None:
    for number, mode in enumerate((0o000, 0o100, 0o400, 0o1777)):
        inner = tree / f"closed{number}"
        inner.mkdir()
        (inner / "file").touch()
        os.chown(inner, 100000 + number, 100000 + number)
        inner.chmod(mode)
    assert removed(tree) == {}
    assert not tree.exists()


def test_files_held_open(tree: Path) -> None:
    (tree / "held").write_text("still here")
    with (tree / "held").open() as held:
        assert removed(tree) == {}
        assert held.read() == "still here"
    assert not tree.exists()


@pytest.mark.parametrize("point", ["mounted", "a/mounted"])
def test_mounts_are_detached_and_not_entered(tree: Path, point: str) -> None:
    (tree / point).mkdir(parents=True)
    (tree / point / "below").touch()
    run(["mount", "-t", "tmpfs", "tmpfs", tree / point])
    (tree / point / "inside").touch()
    with opened(tree / point) as inside:
        assert removed(tree) == {}
        assert names(inside) == ["inside"]
    assert not tree.exists()


def test_mounts_on_files_and_on_mounts(place: Path, tree: Path) -> None:
    (tree / "file").touch()
    (place / "other").write_text("mine")
    run(["mount", "--bind", place / "other", tree / "file"])
    (tree / "twice").mkdir()
    for _ in range(3):
        run(["mount", "-t", "tmpfs", "tmpfs", tree / "twice"])
    run(["mount", "--bind", place, tree])
    assert removed(tree) == {}
    assert not tree.exists()
    assert (place / "other").read_text() == "mine"
    assert mounts.below(tree) == []


@pytest.mark.parametrize("point", ["", "hung", "a/hung"])
def test_a_mount_that_hangs_keeps_nobody_waiting(tree: Path, point: str) -> None:
    (tree / point).mkdir(parents=True, exist_ok=True)
    with hung_mount(tree / point):
        started = time.monotonic()
        assert removed(tree) == {}
        assert time.monotonic() - started < 5
        assert not tree.exists()


def test_what_is_mounted_later_is_not_entered(tree: Path) -> None:
    """Its owner can mount by a descriptor that he holds; so a directory is entered in the step that opens it."""
    (tree / "mounted").mkdir()
    (tree / "mounted/below").touch()
    run(["mount", "-t", "tmpfs", "tmpfs", tree / "mounted"])
    (tree / "mounted/inside").touch()
    with opened(tree) as parent, entered(parent, "mounted") as directory:
        assert names(directory) == ["below"]


def test_no_link_is_entered(tree: Path) -> None:
    (tree / "link").symlink_to("/etc")
    with opened(tree) as parent, pytest.raises(OSError, match=r"symbolic|directory"), entered(parent, "link"):
        pass


def test_what_cannot_go_is_named_and_the_rest_goes(place: Path) -> None:
    if mounts.holding(place, mounts.table()).kind == "tmpfs":
        pytest.skip("nothing on a tmpfs can be made immutable")
    tree = place / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/immutable").touch()
    (tree / "a/b/other").touch()
    run(["chattr", "+i", tree / "a/immutable"])
    try:
        kept = removed(tree)
        left = [path.name for path in tree.rglob("*")]
    finally:
        for path in tree.rglob("immutable"):
            run(["chattr", "-i", path])
    assert kept["immutable"] == "Operation not permitted"
    assert len(kept) == 2, "it, and what holds it"
    assert len(left) == 2
    assert "immutable" in left
    assert removed(tree) == {}


def test_a_file_system_that_became_read_only(place: Path) -> None:
    (place / "mounted/tree/a").mkdir(parents=True)
    run(["mount", "-t", "tmpfs", "tmpfs", place / "mounted"])
    (place / "mounted/tree/a").mkdir(parents=True)
    run(["mount", "-o", "remount,ro", place / "mounted"])
    assert removed(place / "mounted/tree") == {"tree": "Read-only file system"}


def test_only_some_are_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3 * MOST_NAMED):
        (tree / f"file{number}").touch()
    monkeypatch.setattr(remove_tree, "_unlinked", unlinked_unless_a_file)
    assert len(removed(tree)) == MOST_NAMED


def unlinked_unless_a_file(directory: int, name: str) -> bool:
    if name.startswith("file"):
        raise PermissionError(1, "Operation not permitted")
    return False


def test_tens_of_thousands_of_inodes(tree: Path) -> None:
    """At first with too little time, then with none, then with some."""
    in_memory = mounts.holding(tree, mounts.table()).kind == "tmpfs"
    for top in range(50 if in_memory else 5):
        (tree / f"d{top}").mkdir()
        for inner in range(10):
            directory = tree / f"d{top}/{inner}"
            directory.mkdir()
            for number in range(100):
                os.close(os.open(f"{directory}/{number}", os.O_CREAT | os.O_WRONLY))
    with opened(tree.parent) as parent:
        assert "the rest" in remove_tree.remove(parent, tree.name, Looks(3000))
    before = sum(1 for _ in tree.rglob("*"))
    assert removed(tree, 0.0)["the rest"]
    assert sum(1 for _ in tree.rglob("*")) == before > 0
    started = time.monotonic()
    assert removed(tree) == {}
    assert time.monotonic() - started < 30
    assert not tree.exists()


class Looks(Deadline):
    """It passes when it was looked at so often, however fast the disk is."""

    def __init__(self, number: int) -> None:
        super().__init__(3600)
        self.number = number

    @property
    def passed(self) -> bool:
        self.number -= 1
        return self.number < 0
