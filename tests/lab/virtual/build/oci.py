"""Container images made from directories, as archives; the same content always gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

MOMENT = 1767225600
CREATED = "2026-01-01T00:00:00Z"
PLATFORM = {"architecture": "amd64", "os": "linux"}
BLOCK = 1 << 20

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Layer:
    """What one step changes in a file system, as a tar file."""

    tar: Path

    @cached_property
    def digest(self) -> str:
        return _file_digest(self.tar)

    @cached_property
    def compressed(self) -> Path:
        target = self.tar.with_suffix(".tar.gz")
        with self.tar.open("rb") as plain, target.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) as packed:
            shutil.copyfileobj(plain, packed, BLOCK)
        return target


@dataclass(frozen=True)
class Image:
    """Layers, bottom first, and how a container of them is started (`settings`, in Docker's names)."""

    name: str
    layers: Sequence[Layer]
    settings: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def config(self) -> bytes:
        files = {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in self.layers]}
        return _json({**PLATFORM, "created": CREATED, "config": dict(self.settings), "rootfs": files})


def layer(
    target: Path,
    directory: Path,
    *,
    whiteouts: Collection[str] = (),
    opaque: Collection[str] = (),
) -> Layer:
    """All of `directory`; `whiteouts` disappear from the layers below, which `opaque` directories hide altogether."""
    marks = [_whiteout(path) for path in whiteouts] + [f"{path}/.wh..wh..opq" for path in opaque]
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in _tree(directory):
            _add(tar, path, str(path.relative_to(directory)))
        for mark in sorted(marks):
            tar.addfile(_settled(tarfile.TarInfo(mark)))
    return Layer(target)


def write_docker_archive(target: Path, image: Image) -> None:
    """The form that `docker save` writes: layers as they are."""
    config = f"{_digest(image.config)}.json"
    paths = [f"{layer.digest}/layer.tar" for layer in image.layers]
    manifest = [{"Config": config, "RepoTags": [image.name], "Layers": paths}]
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        _put(tar, "manifest.json", _json(manifest))
        _put(tar, config, image.config)
        for path, layer in zip(paths, image.layers, strict=True):
            _put(tar, path, layer.tar)


def write_oci_archive(target: Path, images: Sequence[Image]) -> None:
    """An OCI layout with several images; what they share, compressed layers above all, is there once."""
    blobs: dict[str, bytes | Path] = {}
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [_store(image, blobs) for image in images]}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        _put(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _put(tar, "index.json", _json(index))
        for digest, content in sorted(blobs.items()):
            _put(tar, f"blobs/sha256/{digest}", content)


def _store(image: Image, blobs: dict[str, bytes | Path]) -> dict[str, object]:
    """Add an image's blobs to `blobs`; return its line in the index."""
    layers = [_blob(blobs, LAYER_TYPE, layer.compressed) for layer in image.layers]
    config = _blob(blobs, CONFIG_TYPE, image.config)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers}
    # containerd takes the whole name from its own annotation; the standard one holds only a tag.
    names = {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name.rpartition(":")[2]}
    return {**_blob(blobs, MANIFEST_TYPE, _json(manifest)), "platform": PLATFORM, "annotations": names}


def _blob(blobs: dict[str, bytes | Path], kind: str, content: bytes | Path) -> dict[str, object]:
    digest = _file_digest(content) if isinstance(content, Path) else _digest(content)
    blobs[digest] = content
    size = content.stat().st_size if isinstance(content, Path) else len(content)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _tree(directory: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        path = Path(entry.path)
        yield path
        if entry.is_dir(follow_symlinks=False):
            yield from _tree(path)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    member = _settled(tar.gettarinfo(path, name))
    if member.isreg():
        with path.open("rb") as content:
            tar.addfile(member, content)
    else:
        tar.addfile(member)


def _put(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    member = _settled(tarfile.TarInfo(name))
    with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as stream:
        member.size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        tar.addfile(member, stream)


def _settled(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = MOMENT
    member.uname = member.gname = ""
    return member


def _whiteout(path: str) -> str:
    gone = PurePosixPath(path)
    return str(gone.with_name(f".wh.{gone.name}"))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
