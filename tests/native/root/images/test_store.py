"""Images in and out of the store, by the commands of an administrator."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from moorage.root.images import opaque
from moorage.root.images.store import Store
from support.archives import Member, directory, layer, oci_archive, oci_directory, saved
from support.engine import Engine

NAME = "localhost/test/one:1"
BASE = layer(directory("etc"), Member("etc/motd", data=b"old\n"), directory("data"), Member("data/gone", data=b"x"))
UPPER = layer(Member("etc/motd", data=b"new\n"), directory("data"), Member("data/.wh..wh..opq"))


def listed(engine: Engine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(engine.moorage("image", "list", "--json").stdout)["images"]
    return found


def names(engine: Engine) -> list[str]:
    return sorted(name for image in listed(engine) for name in image["names"])


@pytest.mark.parametrize("kind", ["docker-archive", "oci-archive", "oci-directory"])
def test_an_image_comes_goes_and_is_what_it_was(engine: Engine, files: Path, store: Store, kind: str) -> None:
    match kind:
        case "docker-archive":
            source = saved(files / "image.tar", NAME, BASE, UPPER)
        case "oci-archive":
            source = oci_archive(files / "image.tar", oci_directory(files / "layout", NAME, BASE, UPPER))
        case _:
            source = oci_directory(files / "layout", NAME, BASE, UPPER)
    said = engine.moorage("image", "add", source, "--name", NAME).stderr
    assert "adding" in said
    assert f"added {NAME}" in said
    assert names(engine) == [NAME]
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    assert f"{NAME} is unchanged" in engine.moorage("image", "verify").stderr
    engine.moorage("image", "remove", NAME)
    assert listed(engine) == []
    assert [entry.name for entry in (store.graph / "overlay").iterdir() if len(entry.name) == 64] == []


def test_what_an_upper_layer_hides_is_marked_for_users(engine: Engine, files: Path, store: Store) -> None:
    engine.moorage("image", "add", saved(files / "image.tar", NAME, BASE, UPPER))
    marked = [place for place in store.graph.glob("overlay/*/diff/data") if opaque.attribute(place, opaque.USERS)]
    assert [opaque.attribute(place, opaque.ROOTS) for place in marked] == [opaque.YES]
    os.removexattr(marked[0], opaque.USERS)
    assert "'data' is opaque for root, and not for users" in engine.moorage("image", "verify", ok=(1,)).stdout


def test_a_name_is_taken_over_only_if_told_so(engine: Engine, files: Path) -> None:
    engine.moorage("image", "add", saved(files / "one.tar", NAME, BASE))
    before = listed(engine)
    other = saved(files / "two.tar", NAME, UPPER)
    refused = engine.moorage("image", "add", other, ok=(1,)).stderr
    assert f"{NAME} is another image here already" in refused
    assert "--replace" in refused
    assert listed(engine) == before
    engine.moorage("image", "add", other, "--replace")
    (after,) = listed(engine)
    assert (after["names"], after["id"] != before[0]["id"]) == ([NAME], True)


def test_an_image_without_a_name_needs_one(engine: Engine, files: Path) -> None:
    source = saved(files / "image.tar", "", BASE)
    assert "give it one with --name" in engine.moorage("image", "add", source, ok=(1,)).stderr
    assert listed(engine) == []
    engine.moorage("image", "add", source, "--name", NAME)
    assert names(engine) == [NAME]


def test_an_image_keeps_the_names_it_had(engine: Engine, files: Path) -> None:
    source = saved(files / "image.tar", NAME, BASE)
    engine.moorage("image", "add", source)
    engine.moorage("image", "add", source, "--name", "localhost/test/other:1")
    assert names(engine) == [NAME, "localhost/test/other:1"]


def test_an_image_under_another_name_takes_nobodys(engine: Engine, files: Path) -> None:
    engine.moorage("image", "add", saved(files / "one.tar", NAME, BASE))
    (before,) = listed(engine)
    engine.moorage("image", "add", saved(files / "two.tar", NAME, UPPER), "--name", "localhost/test/other:1")
    assert names(engine) == [NAME, "localhost/test/other:1"]
    assert [image["id"] for image in listed(engine) if NAME in image["names"]] == [before["id"]]


def test_what_was_changed_on_disk_is_found(engine: Engine, files: Path, store: Store) -> None:
    engine.moorage("image", "add", saved(files / "image.tar", NAME, BASE, UPPER))
    changed = [file for file in store.graph.glob("overlay/*/diff/etc/motd") if file.read_text() == "new\n"]
    changed[0].write_text("bad\n")
    said = engine.moorage("image", "verify", NAME, ok=(1,)).stdout
    assert "its files make sha256:" in said
    assert "remove it, and add it again" in said


@pytest.mark.parametrize("fault", ["a layer", "the description"])
def test_a_wrong_digest_leaves_nothing(engine: Engine, files: Path, fault: str) -> None:
    source = oci_directory(files / "layout", NAME, BASE)
    sizes = {path.stat().st_size: path for path in (source / "blobs/sha256").iterdir()}
    harmed = sizes[max(sizes)] if fault == "a layer" else sorted(sizes.items())[0][1]
    data = bytearray(harmed.read_bytes())
    data[len(data) // 2] ^= 1
    harmed.write_bytes(data)
    engine.moorage("image", "add", source, "--name", NAME, ok=(1,))
    assert listed(engine) == []


def test_two_commands_do_not_meet(engine: Engine, store: Store) -> None:
    engine.moorage("image", "list")
    with store.locked():
        assert "another command is at work" in engine.moorage("image", "list", ok=(1,)).stderr


def test_a_store_that_others_can_write_is_refused(engine: Engine, store: Store) -> None:
    engine.moorage("image", "remove")
    store.path.chmod(0o755)
    assert "is not a directory of root's alone" in engine.moorage("image", "list", ok=(1,)).stderr
