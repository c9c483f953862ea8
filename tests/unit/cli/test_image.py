"""What `moorage image` says before it does anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.cli import image
from moorage.common.errors import UserError
from moorage.node.config.schema import Config, Store


@pytest.mark.parametrize("verb", ["add", "list", "remove", "prepare", "verify"])
def test_each_verb_teaches(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        image.main([verb, "--help"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 4


def test_the_whole_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        image.main(["--help"])
    said = capsys.readouterr().out
    assert "moorage image add registry.example/kindest/node" in said
    assert "moorage image prepare" in said


def test_it_is_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match="run it with sudo"):
        image.main(["list"])


@pytest.mark.parametrize(
    "words",
    [[], ["nonsense"], ["add"], ["add", "a", "--name", "Not/A:Name:"], ["prepare"], ["prepare", "a", "--name", "-x"]],
)
def test_wrong_words_end_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        image.main(words)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("moorage: image")
    assert line.endswith(f": see `moorage help image{' ' + words[0] if words and words != ['nonsense'] else ''}`")


@pytest.mark.parametrize(("words", "said"), [(["list"], ""), (["list", "--json"], '{"schema": 1, "images": []}\n')])
def test_a_look_does_not_make_the_store(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "umask", lambda _: 0)
    monkeypatch.setattr(image, "load", lambda: Config(store=Store(path=tmp_path / "store")))
    assert image.main(words) == 0
    assert not (tmp_path / "store").exists()
    out, err = capsys.readouterr()
    assert out == said
    assert ("the store is empty" in err) is (not said)
