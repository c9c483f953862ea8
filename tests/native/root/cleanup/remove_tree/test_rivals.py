"""The removal of trees that somebody still has a hand in."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.command import run
from moorage.root.cleanup import remove_tree
from support.peers import Peer
from support.trees import USER, removed


class TestItsOwnerIsStillThere:
    """He holds a descriptor of a directory in there: his other job does."""

    @pytest.fixture
    def owner(self) -> Iterator[Peer]:
        with Peer(USER) as owner:
            yield owner

    @pytest.fixture
    def held(self, tree: Path, owner: Peer) -> int:
        owner.do(os.makedirs, tree / "a/b/c")
        descriptor: int = owner.do(os.open, tree / "a/b", os.O_RDONLY)
        return descriptor

    def test_he_can_put_nothing_in_there_afterwards(self, tree: Path, owner: Peer, held: int) -> None:
        owner.do(make_in, held, "before")
        assert removed(tree) == {}
        assert not tree.exists()
        with pytest.raises(OSError, match=r"denied|No such"):
            owner.do(make_in, held, "after")

    def test_nor_while_it_is_being_removed(self, place: Path, tree: Path, owner: Peer, held: int) -> None:
        """He makes files, directories and links as fast as he can, and moves what is there."""
        outside = place / "outside"
        outside.mkdir()
        (outside / "file").write_text("mine")
        for number in range(2000):
            (tree / f"file{number}").touch()
        owner.begin(restless, held, outside)
        while not (tree / "a/b/c/0").exists() and owner.waiting:
            pass
        assert removed(tree) == {}
        assert not tree.exists()
        assert owner.result() > 0
        assert (outside / "file").read_text() == "mine"
        assert outside.stat().st_uid == 0

    def test_a_directory_is_roots_before_it_is_looked_into(
        self, tree: Path, owner: Peer, held: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unlinked(directory: int, name: str) -> bool:
            if name == "file":
                refused.append(owner.do(refusal, held))
            return real(directory, name)

        (tree / "a/b/file").touch()
        refused: list[str] = []
        real = remove_tree._unlinked
        monkeypatch.setattr(remove_tree, "_unlinked", unlinked)
        assert removed(tree) == {}
        assert refused == ["PermissionError"]

    def test_a_directory_in_work_is_roots_alone(self, tree: Path, owner: Peer, held: int) -> None:
        (tree / "kept").mkdir()
        run(["mount", "-t", "tmpfs", "tmpfs", tree / "a"])
        removed(tree, 0)
        assert (tree.stat().st_uid, stat.S_IMODE(tree.stat().st_mode)) == (0, 0o700)


def make_in(directory: int, name: str) -> None:
    os.mkdir(name, dir_fd=directory)


def refusal(directory: int) -> str:
    try:
        make_in(directory, "during")
    except OSError as error:
        return type(error).__name__
    return "none"


def restless(directory: int, target: Path) -> int:
    """What one can do by a descriptor, until it is refused; how often it was done."""
    done = 0
    try:
        while True:
            name = str(done)
            os.mkdir(name, dir_fd=directory)
            os.symlink(target, f"l{name}", dir_fd=directory)
            os.rename(f"l{name}", f"c/l{name}", src_dir_fd=directory, dst_dir_fd=directory)
            os.rename(name, f"c/{name}", src_dir_fd=directory, dst_dir_fd=directory)
            done += 1
    except OSError:
        return done
