"""Prepares a node image so that it starts fast: it gets one layer, in which the images inside it are unpacked.

Each container of a node image copies everything that the image has in /var. So the unpacked layers are put elsewhere,
with links in their places, and the packed ones are removed.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moorage.common import files, node_image
from moorage.common.errors import MoorageError, UserError
from moorage.common.progress import Progress, size
from moorage.root.images import add, catalog, storage_layers, tar_split
from moorage.root.images.catalog import Image
from moorage.root.images.prepare import bbolt, containerd_db, file_tree, inner_images, tar_headers, tar_writer
from moorage.root.images.prepare.containerd_db import Database
from moorage.root.images.prepare.file_tree import Tree
from moorage.root.images.prepare.tar_entry import Entry, InLayer, Slice
from moorage.root.images.prepare.unpack import Unpacker
from moorage.root.images.storage_layers import Layer
from moorage.root.images.store import LONG, Store

LARGEST_DATABASE: Final = 1 << 28
LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"
CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
# The content of this directory is copied to each container's volume for /var.
COPIED: Final = "var"


@dataclass(frozen=True)
class Result:
    """A prepared image: its layer, and the number of bytes that a container copies, before and now."""

    digest: str
    size: int
    copied_before: int
    copied: int
    left_packed: tuple[str, ...]

    @property
    def summary(self) -> str:
        packed = f", {len(self.left_packed)} images left packed" if self.left_packed else ""
        return f"each cluster copies {size(self.copied)} instead of {size(self.copied_before)}{packed}"


def records(store: Store) -> dict[str, dict[str, Any]]:
    """The records of all prepared images, by id."""
    return {place.stem: json.loads(place.read_text()) for place in store.records.glob("*.json")}


def prepare(store: Store, image: Image, name: str, progress: Progress) -> Image:
    """Make a prepared image. Without its own name it takes the names of the original."""
    if image.id in records(store):
        raise UserError(f"{image.label} is prepared already", "there is nothing to be done", code="M-IMAGE-14")

    def watch() -> None:
        store.insist_on_room()
        progress.tick()

    with ExitStack() as stack:
        before = stack.enter_context(add.undone(store))
        workshop = stack.enter_context(store.workshop())
        description = json.loads(storage_layers.config(store.graph, image.id))
        progress.phase(f"reading {image.label} ({size(image.size)})")
        root = merged(storage_layers.chain(store.graph, image.id), watch)
        progress.phase("unpacking the images in it")
        result = _write(root, str(description.get("architecture")), workshop, watch)
        progress.phase(f"storing it ({size(result.size)})")
        _describe(workshop / "oci", description, image, result)
        made = _store(store, workshop / "oci", watch)
        watch()
        _record(store, made, image, result)
        _name(store, before, made, (name,) if name else image.names)
        return catalog.find(store.images(), made.id)


def merged(chain: list[Layer], watch: Callable[[], None]) -> Tree:
    """All layers as one tree. Each one is read to its end, and compared with its digest."""
    root = Tree()
    for layer in chain:
        with tar_split.opened(layer, lambda _: watch()) as stream:
            # The default argument keeps this layer: a closure would see the last one of the loop.
            def content(_: object, path: str, layer: Layer = layer) -> InLayer:
                return InLayer(layer, path)

            with tar_headers.members(stream) as members:
                upper = file_tree.layer(members, content)
            if stream.finish() != layer.digest:
                raise UserError(
                    f"layer {layer.id[:12]} has changed", "`moorage image verify` says more", code="M-IMAGE-15"
                )
        root = file_tree.applied(upper, root)
    return root


def _write(root: Tree, architecture: str, workshop: Path, watch: Callable[[], None]) -> Result:
    """Write the new layer to `workshop`/oci."""
    blobs = workshop / "oci/blobs/sha256"
    blobs.mkdir(parents=True)
    before = _weight(root)
    database = _database(root)
    with tar_writer.packed(blobs / "layer", watch) as pack:
        unpacker = Unpacker(root, pack, database, workshop, watch)
        unpacker.unpack(list(inner_images.images(root, database.images(), architecture)))
        _keep(root, containerd_db.DATABASE, database.known, workshop / "meta.db")
        _keep(root, f"{containerd_db.SNAPSHOTS}/metadata.db", database.snapshots, workshop / "metadata.db")
        pack.add(root)
    (blobs / "layer").rename(blobs / pack.digest)
    return Result(pack.digest, pack.size, before, _weight(root), tuple(unpacker.left_packed))


def _database(root: Tree) -> Database:
    known = _bucket(root, containerd_db.DATABASE)
    if known is None:
        what = f"there is no {containerd_db.DATABASE} in this image"
        raise UserError(what, "give a node image of kind's; others start as they are", code="M-IMAGE-16")
    snapshots = _bucket(root, f"{containerd_db.SNAPSHOTS}/metadata.db") or bbolt.Bucket()
    moment = root.find(containerd_db.DATABASE)
    return Database(known, snapshots, moment.entry.mtime if moment else 0)


def _bucket(root: Tree, path: str) -> bbolt.Bucket | None:
    there = root.find(path)
    if not there or not there.entry.content:
        return None
    if there.entry.size > LARGEST_DATABASE:
        raise MoorageError(f"{path} in the image is too large")
    with there.entry.content.opened() as file:
        return bbolt.read(file.read(LARGEST_DATABASE))


def _keep(root: Tree, path: str, bucket: bbolt.Bucket, file: Path) -> None:
    file.write_bytes(bbolt.write(bucket))
    old = root.find(path)
    moment = old.entry.mtime if old else 0
    root.put(path, Entry(kind=tarfile.REGTYPE, mode=0o600, mtime=moment, size=file.stat().st_size, content=Slice(file)))


def _weight(root: Tree) -> int:
    there = root.find(COPIED)
    return sum(part.entry.size for _, part in there.walk()) if there else 0


def _describe(place: Path, old: dict[str, Any], image: Image, result: Result) -> None:
    """Write an OCI directory with one image: the configuration of the old one, and the new layer."""
    kept = {key: old[key] for key in ("architecture", "os", "variant", "created", "config") if key in old}
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{result.digest}"]}
    history = [{"created_by": f"moorage image prepare {image.id}"}]
    config = _blob(place, CONFIG_TYPE, kept | {"rootfs": rootfs, "history": history})
    layer = {"mediaType": LAYER_TYPE, "digest": f"sha256:{result.digest}", "size": result.size}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": [layer]}
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [_blob(place, MANIFEST_TYPE, manifest)]}
    (place / "index.json").write_text(json.dumps(index))
    (place / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))


def _blob(place: Path, kind: str, content: object) -> dict[str, object]:
    data = json.dumps(content, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    (place / "blobs/sha256" / digest).write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _store(store: Store, place: Path, watch: Callable[[], None]) -> Image:
    said = store.podman("pull", "--quiet", f"oci:{place}", limit=LONG, watch=watch)
    return catalog.find(store.images(), said.strip())


def _record(store: Store, made: Image, image: Image, result: Result) -> None:
    record = {"from": image.id, "summary": result.summary, "left_packed": list(result.left_packed)}
    files.replace(store.records / f"{made.id}.json", json.dumps(record))


def _name(store: Store, before: list[Image], made: Image, names: tuple[str, ...]) -> None:
    """Give the image these names, and remove names that Podman has invented."""
    known = {old for image in before if image.id == made.id for old in image.names}
    for name in names:
        store.podman("tag", made.id, name)
    wanted = {node_image.full_names(name)[0] for name in names}
    for old in set(made.names) - known - wanted:
        store.podman("untag", made.id, old)
