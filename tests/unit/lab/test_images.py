"""Image archives that the lab writes say what they contain, hide what they should, and never differ by chance."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from moorage.common.errors import MoorageError
from virtual.build import inner_images, node_image, oci


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "bin").mkdir(parents=True)
    (root / "bin/tool").write_text("#!/bin/sh\n")
    (root / "bin/tool").chmod(0o755)
    (root / "bin/alias").symlink_to("tool")
    return root


def members(archive: bytes | Path) -> dict[str, tarfile.TarInfo]:
    stream = archive.open("rb") if isinstance(archive, Path) else io.BytesIO(archive)
    with stream, tarfile.open(fileobj=stream) as tar:
        return {member.name: member for member in tar.getmembers()}


def content(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        stream = tar.extractfile(name)
        assert stream
        return stream.read()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_layer_keeps_kinds_modes_and_links(tmp_path: Path, tree: Path) -> None:
    found = members(oci.layer(tmp_path / "layer.tar", tree).tar)
    assert list(found) == ["bin", "bin/alias", "bin/tool"]
    assert found["bin/alias"].linkname == "tool"
    assert found["bin/tool"].mode == 0o755


def test_a_layer_does_not_show_when_or_by_whom_it_was_made(tmp_path: Path, tree: Path) -> None:
    first = oci.layer(tmp_path / "first.tar", tree)
    os.utime(tree / "bin/tool", (1, 1))
    second = oci.layer(tmp_path / "second.tar", tree)
    assert first.digest == second.digest
    assert first.compressed.read_bytes() == second.compressed.read_bytes()
    assert members(first.tar)["bin/tool"].uname == ""


def test_whiteouts_and_opaque_directories_have_their_marks(tmp_path: Path, tree: Path) -> None:
    layer = oci.layer(tmp_path / "layer.tar", tree, whiteouts=["bin/old", "gone"], opaque=["bin"])
    marks = {"bin/.wh.old", ".wh.gone", "bin/.wh..wh..opq"}
    assert marks < members(layer.tar).keys()


def test_a_docker_archive_names_its_layers_by_what_they_unpack_to(tmp_path: Path, tree: Path) -> None:
    layer = oci.layer(tmp_path / "layer.tar", tree)
    oci.write_docker_archive(tmp_path / "image.tar", oci.Image("local/tool:1", [layer], {"Cmd": ["tool"]}))
    (described,) = json.loads(content(tmp_path / "image.tar", "manifest.json"))
    config = content(tmp_path / "image.tar", described["Config"])
    assert described["RepoTags"] == ["local/tool:1"]
    assert described["Config"] == f"{sha256(config)}.json"
    assert json.loads(config)["config"] == {"Cmd": ["tool"]}
    assert json.loads(config)["rootfs"]["diff_ids"] == [
        f"sha256:{sha256(content(tmp_path / 'image.tar', path))}" for path in described["Layers"]
    ]


def test_images_of_one_oci_archive_share_a_layer(tmp_path: Path, tree: Path) -> None:
    layer = oci.layer(tmp_path / "layer.tar", tree)
    archive = tmp_path / "images.tar"
    oci.write_oci_archive(
        archive, [oci.Image("local/a:1", [layer], {}), oci.Image("local/b:1", [layer], {"User": "1"})]
    )
    index = json.loads(content(archive, "index.json"))["manifests"]
    assert [line["annotations"]["io.containerd.image.name"] for line in index] == ["local/a:1", "local/b:1"]
    blobs = [name for name in members(archive) if name.startswith("blobs/")]
    assert len(blobs) == 5  # two manifests, two configurations, one layer
    for name in blobs:
        assert sha256(content(archive, name)) == name.rpartition("/")[2]


def test_a_compressed_layer_is_the_same_layer(tmp_path: Path, tree: Path) -> None:
    layer = oci.layer(tmp_path / "layer.tar", tree)
    assert sha256(gzip.decompress(layer.compressed.read_bytes())) == layer.digest


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("registry/kube-proxy:v1", "kube-proxy"),
        ("registry/coredns/coredns:v1", "coredns"),
        ("registry:5000/etcd:3-0", "etcd"),
        ("registry:5000/etcd", "etcd"),
    ],
)
def test_image_names_are_shortened(name: str, short: str) -> None:
    assert inner_images.short(name) == short


def test_the_pause_image_is_the_one_that_kind_configures(tmp_path: Path) -> None:
    configuration = tmp_path / "etc/containerd/config.toml"
    configuration.parent.mkdir(parents=True)
    configuration.write_text('[plugins]\n  sandbox_image = "registry/pause:1"\n')
    assert node_image.sandbox_image(tmp_path) == "registry/pause:1"
    configuration.write_text("[plugins]\n")
    with pytest.raises(MoorageError, match="names no sandbox_image"):
        node_image.sandbox_image(tmp_path)


def test_containers_get_kinds_hook_and_no_process_limits() -> None:
    spec = '{"process": {"rlimits": [{"type": "RLIMIT_NOFILE"}], "cwd": "/"}, "root": {"path": "rootfs"}}'
    made = node_image.container_defaults(spec)
    assert made["process"] == {"cwd": "/"}
    assert made["root"] == {"path": "rootfs"}
    assert made["hooks"]["createContainer"][0]["path"].startswith("/kind/")
