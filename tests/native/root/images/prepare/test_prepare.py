"""Node images made to start fast: real containerds fill them, and find in them afterwards what they would have made."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from moorage.root.images import storage_layers
from moorage.root.images.prepare import containerd_db as facts
from moorage.root.images.store import Store
from support.archives import Member, directory, hard_link, layer, link, oci_archive, oci_directory, saved
from support.containerd import Containerd, found
from support.engine import Engine

NODE = "localhost/test/node:1"
PLAIN, CHANGED = "localhost/inner/plain:1", "localhost/inner/changed:1"
BULK = os.urandom(3 << 20)
BASE = layer(
    directory("bin"),
    Member("bin/tool", data=BULK, mode=0o755),
    hard_link("bin/same", "bin/tool", mode=0o755),
    Member("bin/su", data=b"su", mode=0o4755),
    link("sh", "bin/tool"),
    directory("etc", mode=0o750),
    Member("etc/removed", data=b"x"),
    Member("etc/changed", data=b"old"),
    directory("cache"),
    Member("cache/hidden", data=b"x"),
    directory("turned"),
    Member("turned/inside", data=b"x"),
    Member("owned", data=b"x", uid=1234),
)
CHANGES = layer(
    directory("etc", mode=0o755),
    Member("etc/.wh.removed"),
    Member("etc/changed", data=b"new"),
    directory("cache"),
    Member("cache/.wh..wh..opq"),
    Member("cache/kept", data=b"y"),
    Member("turned", data=b"a file now"),
)
TOP = layer(directory("etc"), Member("etc/added", data=b"z"))


@pytest.fixture(params=[0, 1], ids=["the lab's", "Debian's"])
def containerd(engine: Engine, request: pytest.FixtureRequest) -> Containerd:
    there = found(engine)
    number: int = request.param
    if number >= len(there):
        pytest.skip("needs a containerd: make the lab's guests (make lab)")
    return there[number]


@pytest.fixture
def archives(files: Path) -> list[Path]:
    """One image packed as registries have them, and one that is not."""
    made = []
    for number, (name, parts) in enumerate({PLAIN: (BASE,), CHANGED: (BASE, CHANGES, TOP)}.items()):
        place = oci_directory(files / f"layout.{number}", name, *parts)
        made.append(oci_archive(files / f"inner.{number}.tar", place))
    return made


def node(engine: Engine, files: Path, root: Path) -> Path:
    """A node image in two layers, of which the upper one removes something and brings containerd's store."""
    tree = files / "tree"
    (tree / "var/lib").mkdir(parents=True)
    engine.run("cp", "-a", root, tree / "var/lib/containerd")
    (tree / "usr").mkdir()
    (tree / "usr/.wh.gone").touch()
    (tree / "kind").mkdir()
    (tree / "kind/version").write_text("v1")
    # As it is, with what overlays have left in it.
    engine.run("tar", "--xattrs", "--xattrs-include=*", "-cf", files / "node.tar", "-C", tree, ".")
    below = layer(directory("usr"), Member("usr/gone", data=b"x"), Member("usr/kept", data=b"x"), link("lib", "usr"))
    return saved(files / "image.tar", NODE, below, (files / "node.tar").read_bytes())


def prepared(engine: Engine, store: Store) -> Path:
    """The one layer of the prepared image."""
    (image,) = [image for image in listed(engine) if image["prepared"]]
    (only,) = storage_layers.chain(store.graph, image["id"])
    return only.files


def listed(engine: Engine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(engine.moorage("image", "list", "--json").stdout)["images"]
    return found


@pytest.mark.parametrize("unpack", [False, True], ids=["packed", "unpacked"])
def test_containerd_finds_what_it_would_have_made(
    engine: Engine, files: Path, store: Store, containerd: Containerd, archives: list[Path], unpack: bool
) -> None:
    containerd.fill(files / "expected", archives, unpack=True)
    expected = containerd.show(files / "expected", [PLAIN, CHANGED])
    assert len([line for line in expected if line.startswith(CHANGED)]) > 10
    containerd.fill(files / "root", archives, unpack=unpack)
    engine.moorage("image", "add", node(engine, files, files / "root"))
    said = engine.moorage("image", "prepare", NODE).stderr
    assert f"prepared {NODE}" in said

    tree = prepared(engine, store)
    root, kind = tree / facts.ROOT, tree / "kind"
    assert containerd.show(root, [PLAIN, CHANGED], kind) == expected
    known = containerd.known(root, kind)
    assert known[:2] == sorted([PLAIN, CHANGED])
    # Three layers with all below them, and nothing of it is cleared away.
    assert len([line for line in known if "Committed" in line]) == 3
    assert known[-1] == "3"


def test_a_prepared_image_is_one_small_layer(engine: Engine, files: Path, store: Store, archives: list[Path]) -> None:
    found(engine)[0].fill(files / "root", archives, unpack=False)
    engine.moorage("image", "add", node(engine, files, files / "root"))
    before = listed(engine)[0]["id"]
    engine.moorage("image", "prepare", NODE)
    (image,) = listed(engine)
    assert (image["names"], image["prepared"]["from"]) == ([NODE], before)
    tree = prepared(engine, store)
    assert not (tree / "usr/gone").exists()
    assert (tree / "lib").readlink() == Path("usr")
    assert sum(file.lstat().st_size for file in (tree / "var").rglob("*") if file.is_file()) < len(BULK) // 10
    for snapshot in (tree / facts.SNAPSHOTS / "snapshots").iterdir():
        assert (snapshot / "fs").readlink() == Path(f"/kind/layers/{snapshot.name}")
    tools = [file for file in tree.glob("kind/layers/*/bin/*") if file.lstat().st_size == len(BULK)]
    assert len(tools) >= 4
    assert len({file.stat().st_ino for file in tools}) == 1
    assert stat.S_IMODE(next(tree.glob("kind/layers/*/bin/su")).stat().st_mode) == 0o4755
    assert f"{NODE} is unchanged" in engine.moorage("image", "verify").stderr
    assert "prepared already" in engine.moorage("image", "prepare", NODE, ok=(1,)).stderr


def test_preparing_twice_gives_the_same(engine: Engine, files: Path, archives: list[Path]) -> None:
    found(engine)[0].fill(files / "root", archives, unpack=False)
    engine.moorage("image", "add", node(engine, files, files / "root"))
    for name in ("localhost/test/one:1", "localhost/test/two:1"):
        engine.moorage("image", "prepare", NODE, "--name", name)
    images = {name: image["id"] for image in listed(engine) for name in image["names"]}
    assert images["localhost/test/one:1"] == images["localhost/test/two:1"] != images[NODE]


@pytest.mark.parametrize("fault", ["a layer", "a description", "the database", "no layer"])
def test_what_is_damaged_in_it_leaves_nothing(
    engine: Engine, files: Path, store: Store, archives: list[Path], fault: str
) -> None:
    found(engine)[0].fill(files / "root", archives, unpack=False)
    root = files / "root"
    by_size = sorted((root.parent / "root" / Path(facts.BLOBS).relative_to(facts.ROOT)).iterdir(), key=_size)
    victim = {"a layer": by_size[-1], "a description": by_size[0], "no layer": by_size[-1]}.get(
        fault, root / Path(facts.DATABASE).relative_to(facts.ROOT)
    )
    if fault == "no layer":
        victim.unlink()
    else:
        data = bytearray(victim.read_bytes())
        data[:] = bytes(byte ^ 1 for byte in data)
        victim.chmod(0o600)
        victim.write_bytes(data)
    engine.moorage("image", "add", node(engine, files, root))
    before = listed(engine)
    said = engine.moorage("image", "prepare", NODE, ok=(0, 1))
    assert "Traceback" not in said.stderr
    if fault == "no layer":
        # Those that lack nothing are unpacked all the same; here both stand on what is missing.
        assert "2 images left packed" in said.stderr
    else:
        assert said.code == 1
        assert "damaged" in said.stderr
        assert listed(engine) == before
    assert list(store.temporary.iterdir()) == []


def test_what_is_no_node_image_is_refused(engine: Engine, files: Path) -> None:
    engine.moorage("image", "add", saved(files / "image.tar", NODE, BASE))
    assert "give a node image of kind's" in engine.moorage("image", "prepare", NODE, ok=(1,)).stderr


def _size(path: Path) -> int:
    return path.stat().st_size
