"""The lab builds a thing once for each content of its inputs, and a broken-off build never counts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from virtual.build import cache


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def write(text: str) -> Callable[[Path], None]:
    def build(place: Path) -> None:
        assert list(place.iterdir()) == []
        (place / "thing").write_text(text)

    return build


def test_a_thing_is_built_once() -> None:
    first = cache.cached("thing", ("input",), write("first"))
    assert cache.cached("thing", ("input",), write("second")) == first
    assert (first / "thing").read_text() == "first"


def test_a_renewed_thing_replaces_the_old_one() -> None:
    old = cache.cached("thing", ("input",), write("old"))
    assert cache.cached("thing", ("input",), write("new"), renew=True) == old
    assert (old / "thing").read_text() == "new"


@pytest.mark.parametrize("then", ["input", "another input"])
def test_an_interrupted_build_is_begun_anew(place: Path, then: str) -> None:
    def interrupted(part: Path) -> None:
        (part / "half").write_text("made")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.cached("thing", ("input",), interrupted)
    assert (cache.cached("thing", (then,), write("whole")) / "thing").read_text() == "whole"
    assert not list(place.glob("*.part"))


def test_the_name_follows_the_content(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("one")
    seen = {cache.digest([source])}
    (source / "file").write_text("two")
    seen.add(cache.digest([source]))
    (source / "file").chmod(0o755)
    seen.add(cache.digest([source]))
    (source / "file").rename(source / "other")
    seen.add(cache.digest([source]))
    assert len(seen) == 4


@pytest.mark.parametrize(("one", "other"), [(("ab",), ("a", "b")), (("a", "b"), ("b", "a")), (("a",), ("a", ""))])
def test_inputs_do_not_run_into_each_other(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert cache.digest(one) != cache.digest(other)


def test_those_used_last_are_kept(place: Path) -> None:
    made = [cache.cached("thing", (f"version {number}",), write("")) for number in range(cache.KEPT)]
    other = cache.cached("thing-else", ("input",), write(""))
    for number, old in enumerate(made):
        os.utime(old, (number, number))
    old_log = place / f"{made[1].name}.log"
    old_log.touch()
    cache.cached("thing", ("version 0",), write(""))
    newest = cache.cached("thing", ("one more",), write(""))
    assert {one for one in made if one.exists()} == {made[0], *made[2:]}
    assert newest.exists()
    assert other.exists()
    assert not old_log.exists()
