"""What SOURCE means, and what may be the name of an image."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.common.errors import UsageError, UserError
from moorage.root.images.add import Source, is_name, source


@pytest.mark.parametrize(
    "name",
    [
        "registry.example/kindest/node:v1.35.0",
        "registry.example:5000/a",
        "localhost/a_b/c--d__e.f:Tag_1.2-x",
        "registry.example/a@sha256:" + "0" * 64,
        "registry.example/a:1@sha256:" + "0" * 64,
    ],
)
def test_names(name: str) -> None:
    assert is_name(name)
    assert source(name) == Source("registry", name)
    assert source(f"docker://{name}") == Source("registry", name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-o",
        "--root=/",
        "Registry/a",
        "a b",
        "a//b",
        "a/../b",
        "a/",
        "a:",
        "a:b:c/d:",
        "a@sha256:00",
        "a\n",
        "a:" + "x" * 129,
        "a/" * 300 + "a",
    ],
)
def test_what_is_no_name(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize("given", ["node:v1", "kindest/node:v1", "--root=/", "docker-archive:/etc/passwd", "a b"])
def test_only_full_names_are_asked_for(given: str) -> None:
    with pytest.raises(UsageError, match="neither a file nor a full name"):
        source(given)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "image.tar").touch()
    assert source("image.tar") == source("./image.tar") == Source("file", f"{tmp_path}/image.tar")
    assert source(str(tmp_path)) == Source("directory", str(tmp_path))
    with pytest.raises(UserError, match="there is no /missing"):
        source("/missing")
    # A name that begins with a dash is never an option of Podman's.
    (tmp_path / "-x").touch()
    assert source("-x").place.startswith("/")


def test_the_registry_is_what_comes_first() -> None:
    assert source("registry.example:5000/a/b:1").registry == "registry.example:5000"
