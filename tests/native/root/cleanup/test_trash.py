"""The trash beside a scratch, in which nobody but root finds anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common import job as jobs
from moorage.common.command import run
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.linux import quota
from moorage.node.config import load, schema
from moorage.root import lock
from moorage.root.cleanup import remove_tree, trash
from support.namespaces import MOUNT, fresh
from support.peers import Peer

USER = 12345


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with fresh(MOUNT):
        run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", tmp_path])
        for directory in tmp_path.parents[:2]:
            directory.chmod(0o755)
        yield tmp_path


def scratch_of(place: Path, name: str = "17") -> Path:
    source = place / name
    (source / "a/b").mkdir(parents=True)
    (source / "a/file").write_text("x")
    for path in (source, source / "a", source / "a/b", source / "a/file"):
        os.chown(path, USER, USER)
    return source


def taken(source: Path) -> str:
    entry = trash.put(source)
    assert entry
    return entry


def test_its_owner_cannot_reach_it_any_more(place: Path) -> None:
    source = scratch_of(place)
    with Peer(USER) as owner:
        assert owner.do(os.listdir, source) == ["a"]
        entry = taken(source)
        with pytest.raises(PermissionError):
            owner.do(os.listdir, place / ".moorage-trash" / entry)
        with pytest.raises(FileNotFoundError):
            owner.do(os.listdir, source)
    assert stat.S_IMODE((place / ".moorage-trash").stat().st_mode) == 0o700


def test_it_is_removed(place: Path) -> None:
    entry = taken(scratch_of(place))
    assert trash.remove_entry(place, entry, Deadline(10)) == {}
    assert list((place / ".moorage-trash").iterdir()) == []
    assert trash.remove_entry(place, entry, Deadline(10)) == {}


def test_a_requeued_jobs_scratch_is_another_one(place: Path) -> None:
    taken(scratch_of(place))
    again = scratch_of(place)
    assert trash.empty(place, Deadline(10)) == {}
    assert (again / "a/file").exists()


def test_a_file_is_as_good_as_a_directory(place: Path) -> None:
    (place / "17.img").write_bytes(b"\0" * 4096)
    assert trash.remove_entry(place, taken(place / "17.img"), Deadline(10)) == {}


@pytest.mark.parametrize("there", ["nothing", "no place"])
def test_what_is_not_there(place: Path, there: str) -> None:
    if there == "nothing":
        assert trash.put(place / "17") is None
    assert trash.empty(place / "nowhere", Deadline(1)) == {}
    assert trash.empty(place, Deadline(1)) == {}


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_where_others_can_write_nothing_is_moved(place: Path, mode: int) -> None:
    source = scratch_of(place)
    place.chmod(mode)
    with pytest.raises(MoorageError, match="others than root"):
        trash.put(source)
    assert source.exists()


def test_a_place_of_the_users_is_none(place: Path) -> None:
    source = scratch_of(place / "his")
    os.chown(place / "his", USER, USER)
    with pytest.raises(MoorageError, match="others than root"):
        trash.put(source)


@pytest.mark.parametrize("planted", ["link", "his directory", "file"])
def test_a_trash_that_was_planted_is_not_used(place: Path, planted: str) -> None:
    """As if the place had once been one where others could write."""
    source = scratch_of(place)
    match planted:
        case "link":
            (place / ".moorage-trash").symlink_to("/")
        case "his directory":
            (place / ".moorage-trash").mkdir()
            os.chown(place / ".moorage-trash", USER, USER)
        case "file":
            (place / ".moorage-trash").touch()
    with pytest.raises((MoorageError, OSError)):
        trash.put(source)
    assert source.exists()


def test_two_empty_it_at_once(place: Path) -> None:
    """An Epilog and the unit that goes on after another one."""
    for number in range(20):
        taken(scratch_of(place, str(number)))
        for inner in range(20):
            (next((place / ".moorage-trash").glob(f"{number}.*")) / f"d{inner}/e").mkdir(parents=True)
    with Peer(0) as first, Peer(0) as second:
        for one in (first, second):
            one.begin(trash.empty, place, Deadline(20))
        first.result()
        second.result()
    assert trash.empty(place, Deadline(20)) == {}
    assert list((place / ".moorage-trash").iterdir()) == []


def test_what_comes_while_it_is_emptied_goes_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To start the unit once more while it runs would do nothing."""

    def remove_and_add(parent: int, name: str, deadline: Deadline) -> remove_tree.Kept:
        if name.startswith("17."):
            taken(scratch_of(place, "18"))
        return remove_tree.remove(parent, name, deadline)

    taken(scratch_of(place))
    monkeypatch.setattr(trash, "remove", remove_and_add)
    assert trash.empty(place, Deadline(10)) == {}
    assert list((place / ".moorage-trash").iterdir()) == []


def test_what_does_not_go_is_tried_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken(scratch_of(place))
    monkeypatch.setattr(trash, "remove", lambda *_: {"file": "no"})
    assert trash.empty(place, Deadline(10)) == {"file": "no"}


@pytest.fixture
def configured(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place that the configuration names, and another one that it once named."""
    monkeypatch.setattr(jobs, "STATE", place / "jobs")
    monkeypatch.setattr(load, "load", lambda: schema.Config(scratch=schema.Scratch(path=place / "now")))
    for name in ("jobs", "now", "then"):
        (place / name).mkdir(mode=0o700)
    return place


def test_places_of_an_earlier_configuration_are_emptied(configured: Path) -> None:
    for name in ("now", "then"):
        taken(scratch_of(configured / name))
    for _ in range(2):
        trash.note(configured / "then")
    trash.note(configured / "gone")
    assert (configured / "trash").read_text() == f"{configured}/then\n{configured}/gone\n"
    trash.main()
    assert list(configured.glob("*/.moorage-trash/*")) == []


def test_one_place_that_is_not_roots_keeps_no_other_full(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken(scratch_of(configured / "now"))
    (configured / "then").chmod(0o777)
    trash.note(configured / "then")
    trash.main()
    assert list(configured.glob("now/.moorage-trash/*")) == []
    assert "then can be written by others than root" in capsys.readouterr().err


class TestBounds:
    """Of the kind `project`, where the unit had to go on with what an Epilog began."""

    @pytest.fixture(autouse=True)
    def unbound(self, configured: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        forgotten: list[int] = []
        monkeypatch.setattr(quota, "enforced", lambda _: True)
        monkeypatch.setattr(quota, "remove_limits", lambda _, project: forgotten.append(project))
        return forgotten

    def test_they_go_with_the_last_of_it(self, configured: Path, unbound: list[int]) -> None:
        taken(scratch_of(configured / "now"))
        trash.main()
        assert unbound == [quota.project_of(17)]
        assert list((configured / "jobs").iterdir()) == []

    def test_they_stay_with_what_is_left(
        self, configured: Path, unbound: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken(scratch_of(configured / "now"))
        monkeypatch.setattr(trash, "remove", lambda *_: {"file": "no"})
        trash.main()
        assert unbound == []

    @pytest.mark.parametrize("by", ["lock", "state"])
    def test_those_of_a_job_that_is_here_once_more_stay(
        self, configured: Path, unbound: list[int], monkeypatch: pytest.MonkeyPatch, by: str
    ) -> None:
        monkeypatch.setattr(trash, "EPILOG_TIMEOUT", 0.1)
        taken(scratch_of(configured / "now"))
        if by == "state":
            (configured / "jobs/17.json").touch()
            trash.main()
        else:
            with lock.locked(17):
                trash.main()
        assert unbound == []
