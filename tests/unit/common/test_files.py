"""Small files in places of our own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.common.files import append, create, private, replace


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def test_a_new_file_has_its_mode_whatever_the_umask(place: Path) -> None:
    before = os.umask(0o077)
    try:
        create(place / "new", "content", 0o644)
    finally:
        os.umask(before)
    assert (place / "new").read_text() == "content"
    assert (place / "new").stat().st_mode & 0o7777 == 0o644


def test_what_is_there_is_not_overwritten(place: Path) -> None:
    (place / "target").write_text("old")
    (place / "link").symlink_to(place / "target")
    (place / "dangling").symlink_to(place / "nothing")
    for name in ("target", "link", "dangling"):
        with pytest.raises(FileExistsError):
            create(place / name, "new")
    assert (place / "target").read_text() == "old"
    assert not (place / "nothing").exists()


def test_replacing_replaces_a_link_and_not_its_target(place: Path) -> None:
    (place / "target").write_text("old")
    (place / "link").symlink_to(place / "target")
    replace(place / "link", "new")
    assert (place / "target").read_text() == "old"
    assert (place / "link").read_text() == "new"


def test_replacing_leaves_nothing_else_behind(place: Path) -> None:
    (place / f".file.{os.getpid()}").write_text("of one that was killed")
    replace(place / "file", "new")
    assert [path.name for path in place.iterdir()] == ["file"]


def test_replacing_that_fails_leaves_the_old(place: Path) -> None:
    replace(place / "file", "old")
    with pytest.raises(TypeError):
        replace(place / "file", 5)  # type: ignore[arg-type]
    assert {path.name: path.read_text() for path in place.iterdir()} == {"file": "old"}


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_what_others_can_write_is_not_read(place: Path, mode: int) -> None:
    create(place / "file", "content", mode)
    with pytest.raises(PermissionError):
        private(place / "file")


def test_what_is_ours_alone_is_read(place: Path) -> None:
    create(place / "file", "content", 0o644)
    assert private(place / "file") == "content"


def test_neither_links_nor_pipes_are_read(place: Path) -> None:
    create(place / "file", "content", 0o600)
    (place / "link").symlink_to(place / "file")
    os.mkfifo(place / "pipe", 0o600)
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=name):
            private(place / name)


def test_lines_are_added_in_one_piece(place: Path) -> None:
    for line in ("one\n", "two\n"):
        append(place / "lines", line)
    assert (place / "lines").read_text() == "one\ntwo\n"
    assert (place / "lines").stat().st_mode & 0o7777 == 0o600
    (place / "link").symlink_to(place / "lines")
    with pytest.raises(OSError, match="symbolic"):
        append(place / "link", "three\n")
