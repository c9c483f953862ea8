"""How a job is to see images, and who the owners on disk are for its user."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.common.errors import UserError
from moorage.common.job import Job
from moorage.linux.idmap import MOST_LINES, Line, Range, lines, shown
from moorage.node.config.schema import Config, ViewKind
from moorage.node.config.schema import Store as Settings
from moorage.root import journal, prepare
from moorage.root.images import idmap_probe, view
from moorage.root.images.store import Store
from moorage.root.images.view import Way, choose

JOB = Job(id=17, restart=0, uid=1000, gid=1001, user="alice", node="n", names=frozenset())


@pytest.mark.parametrize(
    ("wanted", "trouble", "kind"),
    [("auto", "", "idmap"), ("auto", "no such thing", "copy"), ("idmap", "", "idmap"), ("copy", "", "copy")],
)
def test_the_way(wanted: ViewKind, trouble: str, kind: str) -> None:
    way = choose(wanted, trouble)
    assert way.kind == kind
    assert way.reason


def test_a_way_that_is_named_is_taken_or_refused() -> None:
    assert choose("auto", "mapped mounts do not work here").reason == "mapped mounts do not work here"
    with pytest.raises(UserError, match=r"store\.view is idmap, and it does not work: set it to auto or copy"):
        choose("idmap", "it does not work")


class TestWhatIsTried:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        store = Store(tmp_path)
        (store.graph / "overlay-images").mkdir(parents=True)
        (store.graph / "overlay-images/images.json").touch()
        return store

    def test_nothing_is_where_nothing_can_be_seen(self, tmp_path: Path) -> None:
        assert view.way(Settings(path=tmp_path)) is None

    def test_nothing_is_where_copies_are_wanted(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        store.probes.mkdir()
        monkeypatch.setattr(idmap_probe, "trouble", None)
        assert view.way(Settings(path=store.path, view="copy")) == Way("copy", "store.view says so")

    def test_without_a_place_for_it_there_are_copies(self, store: Store) -> None:
        assert view.way(Settings(path=store.path)) == Way("copy", f"there is no {store.probes}")

    def test_who_wants_it_is_told(self, store: Store) -> None:
        with pytest.raises(UserError, match=rf"idmap, and there is no {store.probes}:"):
            view.way(Settings(path=store.path, view="idmap"))

    def test_the_prolog_does_as_the_doctor_says(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[str] = []
        monkeypatch.setattr(view, "make", lambda job, store, way, *_: made.append(way.kind))
        monkeypatch.setattr(journal, "log", lambda *_, **__: None)
        config = Config(store=Settings(path=store.path, view="copy"))
        plan: Any = SimpleNamespace(config=config, job=JOB, granted={"uid": [], "gid": []})
        prepare._show_images(plan)
        assert made == ["copy"]


def test_owners_are_in_podmans_order() -> None:
    two = [Range(100000, 10), Range(500000, 65536)]
    assert lines(1000, two) == (Line(0, 1000, 1), Line(1, 100000, 10), Line(11, 500000, 65536))
    assert lines(1000, []) == (Line(0, 1000, 1),)
    assert len(lines(1000, [Range(number * 10, 10) for number in range(1, 1000)])) == MOST_LINES
    found = view.owners(JOB, {"uid": [Range(100000, 65536)], "gid": [Range(200000, 65536)]})
    assert (found.uids[0].shown, found.gids[0].shown) == (1000, 1001)
    assert (found.uids[1].shown, found.gids[1].shown) == (100000, 200000)


@pytest.mark.parametrize(
    ("disk", "there"), [(0, 1000), (1, 100000), (10, 100009), (11, 500000), (65546, 565535), (65547, None)]
)
def test_an_id_on_disk(disk: int, there: int | None) -> None:
    assert shown(disk, lines(1000, [Range(100000, 10), Range(500000, 65536)])) == there


def test_a_line_is_as_the_kernel_reads_it() -> None:
    assert str(Line(1, 100000, 65536)) == "1 100000 65536"


def test_an_empty_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no images: ask the administrator"):
        view.make(JOB, Store(tmp_path), Way("copy", ""), view.owners(JOB, {"uid": [], "gid": []}), 60)
    assert view.place(JOB) == JOB.run / "images"
