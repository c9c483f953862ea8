"""Files below a directory that somebody else has filled, and recipes that somebody else has written."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from pathlib import Path

import pytest

from moorage.common.command import run
from moorage.linux import beneath
from moorage.root.images import tar_split
from moorage.root.images.storage_layers import Layer


@pytest.fixture
def layer(tmp_path: Path) -> Layer:
    made = Layer("a" * 64, "", f"sha256:{hashlib.sha256(b'<data>').hexdigest()}", 6, tmp_path)
    made.files.mkdir(parents=True)
    made.recipe.parent.mkdir()
    return made


def write(layer: Layer, name: str, size: int = 4, **more: object) -> None:
    lines = [
        {"type": 2, "payload": base64.b64encode(b"<").decode()},
        {"type": 1, "name": name, "size": size, **more},
        {"type": 2, "payload": base64.b64encode(b">").decode()},
    ]
    layer.recipe.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))


def test_a_layer_is_put_together_again(layer: Layer) -> None:
    (layer.files / "dir").mkdir()
    (layer.files / "dir/file").write_bytes(b"data")
    for name in ("dir/file", "./dir//file", "/dir/file"):
        write(layer, name)
        assert tar_split.verify(layer) == ""
    write(layer, "", name_raw=base64.b64encode(b"dir/file").decode())
    assert tar_split.verify(layer) == ""


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../../../../../../../etc/passwd", "link", "way/passwd", "pipe", "dir", ""]
)
def test_a_recipe_reads_nothing_but_files_of_its_layer(layer: Layer, name: str) -> None:
    (layer.files / "link").symlink_to("/etc/passwd")
    (layer.files / "way").symlink_to("/etc")
    (layer.files / "dir").mkdir()
    os.mkfifo(layer.files / "pipe")
    write(layer, name)
    assert "is not there any more" in tar_split.verify(layer)


@pytest.mark.parametrize("text", [b"", b"no gzip", gzip.compress(b"no json"), gzip.compress(b'{"type":2}')[:-9]])
def test_a_damaged_recipe_is_one_line(layer: Layer, text: bytes) -> None:
    layer.recipe.write_bytes(text)
    assert tar_split.verify(layer)


def test_a_file_that_became_shorter_is_found(layer: Layer) -> None:
    (layer.files / "file").write_bytes(b"dat")
    write(layer, "file")
    assert "is shorter than it was" in tar_split.verify(layer)


@pytest.mark.usefixtures("fresh_namespaces")
def test_what_is_mounted_in_a_layer_is_not_read(layer: Layer) -> None:
    (layer.files / "dir").mkdir()
    run(["mount", "-t", "tmpfs", "other", layer.files / "dir"])
    (layer.files / "dir/file").write_bytes(b"data")
    with beneath.opened(layer.files) as files, pytest.raises(OSError, match="cross-device"):
        beneath.regular(files, "dir/file")
