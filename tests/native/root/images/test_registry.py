"""Images from a registry: over TLS, with a password, and as their digests say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.root.images.store import Store
from support import debian_registry
from support.archives import Member, blobs, layer
from support.engine import Engine
from support.registry import PASSWORD, USER, serving

BASE = layer(Member("etc/motd", data=b"from afar\n"))
MANIFEST = str(blobs("x", BASE)[1]["digest"])


@pytest.fixture
def contents() -> dict[str, bytes]:
    return blobs("x", BASE)[0]


@pytest.fixture
def stand_in(files: Path, contents: dict[str, bytes]) -> Iterator[str]:
    with serving(files, contents, MANIFEST) as address:
        yield address


@pytest.fixture(params=["a stand-in", "Debian's own"])
def registry(request: pytest.FixtureRequest, files: Path, contents: dict[str, bytes]) -> Iterator[str]:
    if request.param == "a stand-in":
        yield request.getfixturevalue("stand_in")
        return
    if not (program := debian_registry.program()):
        pytest.skip("needs docker-registry: install it, or make what the lab is made of (make lab)")
    with debian_registry.serving(program, files, contents, MANIFEST) as address:
        yield address


def names(engine: Engine) -> list[str]:
    return [
        name
        for image in json.loads(engine.moorage("image", "list", "--json").stdout)["images"]
        for name in image["names"]
    ]


def add(engine: Engine, name: str, *words: str | Path, password: str = PASSWORD, ok: tuple[int, ...] = (0,)) -> str:
    login = ("--user", USER, "--password-stdin", *words)
    return engine.moorage("image", "add", *login, name, input=f"{password}\n", ok=ok).stderr


def test_an_image_comes_with_a_login(engine: Engine, files: Path, store: Store, registry: str) -> None:
    name = f"{registry}/kindest/node:v1"
    assert f"added {name}" in add(engine, name, "--cert-dir", files)
    assert names(engine) == [name]
    # The password was for this once.
    assert not [file for file in store.path.rglob("*.json") if file.name == "login.json"]
    assert list(store.temporary.iterdir()) == []
    refused = engine.moorage("image", "add", "--cert-dir", files, f"{registry}/a/b:1", ok=(1,)).stderr
    assert "unauthorized" in refused or "authentication" in refused


def test_who_is_not_known_gets_nothing(engine: Engine, files: Path, registry: str) -> None:
    assert "login" in add(engine, f"{registry}/a/b:1", "--cert-dir", files, password="wrong", ok=(1,))  # noqa: S106
    assert names(engine) == []


def test_a_registry_that_cannot_prove_itself_is_not_asked(engine: Engine, registry: str) -> None:
    assert "certificate" in add(engine, f"{registry}/a/b:1", ok=(1,))
    assert names(engine) == []


def test_content_that_is_not_what_its_digest_says_is_refused(
    engine: Engine, files: Path, store: Store, stand_in: str, contents: dict[str, bytes]
) -> None:
    (victim,) = [digest for digest, data in contents.items() if data == BASE]
    contents[victim] = layer(Member("etc/motd", data=b"from evil\n"))
    said = add(engine, f"{stand_in}/a/b:1", "--cert-dir", files, ok=(1,))
    assert "igest" in said
    assert names(engine) == []
    assert not list(store.graph.glob("overlay/*/diff/etc/motd"))


def test_options_for_a_registry_go_with_one(engine: Engine, files: Path) -> None:
    (files / "image.tar").touch()
    said = engine.moorage("image", "add", "--cert-dir", files, files / "image.tar", ok=(2,)).stderr
    assert "is no registry to log in to" in said
    said = engine.moorage("image", "add", "--user", USER, "registry.example/a:1", ok=(2,)).stderr
    assert "give both --user and --password-stdin" in said
