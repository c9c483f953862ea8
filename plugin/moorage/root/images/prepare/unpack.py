"""Unpacks the images in a node image: each of their layers once, below /kind/layers."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from moorage.common.errors import MoorageError
from moorage.root.images.prepare import containerd_db, file_tree, inner_images, tar_headers
from moorage.root.images.prepare.containerd_db import Database, Snapshot
from moorage.root.images.prepare.file_tree import Tree
from moorage.root.images.prepare.inner_images import Inner, Packed
from moorage.root.images.prepare.tar_entry import Content, Entry, Slice
from moorage.root.images.prepare.tar_writer import Pack

PLACE: Final = "kind/layers"
GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
# One read of a packed layer becomes at most so many bytes in memory.
STEP: Final = 1 << 20
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS


class NotUnpacked(MoorageError):
    """An image that has to stay packed."""


@dataclass(frozen=True)
class _Layer:
    """An unpacked layer: its own files, these with all layers below it, and which of the two is written.

    A layer with whiteouts or opaque directories is written flat: with all layers below it, and on top of none. The
    node's own overlay would take these marks of an inner layer for its own, and hide them (seen on Linux 6.18).
    """

    files: Tree
    whole: Tree
    flat: bool

    @classmethod
    def on(cls, below: Tree | None, files: Tree) -> Self:
        if below is None:
            return cls(files, files, flat=False)
        return cls(files, file_tree.applied(files, below), flat=files.removes())

    @property
    def written(self) -> Tree:
        return self.whole if self.flat else self.files


@dataclass
class Unpacker:
    """Moves layers out of `root`, the tree of a node image, and writes them to `pack`."""

    root: Tree
    pack: Pack
    database: Database
    workshop: Path
    watch: Callable[[], None]
    # Each unpacked layer with all layers below it, by key: layers above may remove something of it.
    whole: dict[str, Tree] = field(default_factory=dict)
    left_packed: list[str] = field(default_factory=list)

    def unpack(self, images: list[Inner]) -> None:
        """Unpack all images, and remove each packed layer that no packed image needs."""
        self._move_unpacked()
        # Anything else that the image has there would be in the way.
        self.root.remove(PLACE)
        done: set[str] = set()
        needed: set[str] = set()
        for image in images:
            digests = {layer.digest for layer in image.layers}
            try:
                self._unpack_image(image)
                done |= digests
            except NotUnpacked as error:
                self.left_packed.append(f"{image.name}: {error}")
                needed |= digests
        gone = done - needed
        for digest in gone:
            self.root.remove(f"{containerd_db.BLOBS}/{digest.removeprefix('sha256:')}")
        self.database.remove_packed(gone)

    def _unpack_image(self, image: Inner) -> None:
        below: Snapshot | None = None
        for layer in image.layers:
            there = self.database.unpacked().get(layer.key)
            below = there or self._unpack_layer(layer, below)
        if below:
            self.database.point(image.config, below.key)

    def _unpack_layer(self, packed: Packed, below: Snapshot | None) -> Snapshot:
        with self._plain(packed) as file:
            layer = _Layer.on(self.whole[below.key] if below else None, _tree(file, packed.key))
            number = self.database.snapshots.bucket(containerd_db.SCHEMA, "snapshots").sequence + 1
            entries, size = self.pack.add(layer.written, f"{PLACE}/{number}")
        made = self.database.add(packed.key, None if layer.flat else below, entries, size)
        self.whole[made.key] = layer.whole
        self._link(made)
        return made

    def _move_unpacked(self) -> None:
        """Move the layers that were unpacked before to the place of the others."""
        unpacked = self.database.unpacked()
        for snapshot in sorted(unpacked.values(), key=lambda one: one.number):
            files = self._files(snapshot)
            below = self.whole.get(snapshot.parent)
            if snapshot.parent and below is None:
                raise MoorageError(f"the node image lacks what its unpacked layer {snapshot.number} stands on")
            layer = _Layer.on(below, files)
            if layer.flat:
                self.database.detach(snapshot)
            self.pack.add(layer.written, f"{PLACE}/{snapshot.number}")
            self.whole[snapshot.key] = layer.whole
            self._link(snapshot)

    def _files(self, snapshot: Snapshot) -> Tree:
        """The files of an unpacked layer: in containerd's own place, or where an earlier preparation put them."""
        there = self.root.find(f"{containerd_db.SNAPSHOTS}/snapshots/{snapshot.number}/fs")
        if there and there.entry.target == f"/{PLACE}/{snapshot.number}":
            there = self.root.find(f"{PLACE}/{snapshot.number}")
        if not there or not there.entry.is_directory:
            raise MoorageError(f"the node image lacks the files of its unpacked layer {snapshot.number}")
        return there

    def _link(self, snapshot: Snapshot) -> None:
        place = f"{containerd_db.SNAPSHOTS}/snapshots/{snapshot.number}"
        self.root.remove(place)
        self.root.put(place, Entry(mode=0o700))
        self.root.put(f"{place}/work", Entry(mode=0o711))
        self.root.put(f"{place}/fs", Entry(kind=tarfile.SYMTYPE, mode=0o777, target=f"/{PLACE}/{snapshot.number}"))

    @contextmanager
    def _plain(self, layer: Packed) -> Iterator[Path]:
        """The layer as a plain tar file, until the block ends. Both of its digests are checked."""
        content = inner_images.blob(self.root, layer.digest)
        if content is None:
            raise NotUnpacked(f"its layer {layer.digest[:19]} is not there")
        place = self.workshop / "layer.tar"
        try:
            with place.open("xb") as file:
                found = _unpacked(content, layer.digest, file, self.watch)
            if found != layer.diff:
                raise MoorageError(f"layer {layer.digest[:19]} in the node image is not what its image says")
            yield place
        finally:
            place.unlink(missing_ok=True)


def _tree(file: Path, owner: str) -> Tree:
    with file.open("rb") as data, tar_headers.members(data) as members:
        return file_tree.layer(members, lambda member, _: Slice(file, member.offset_data, owner))


def _unpacked(content: Content, digest: str, file: io.BufferedWriter, watch: Callable[[], None]) -> str:
    """Write the plain content of a layer to a file; the digest of that."""
    with content.opened() as packed:
        start = packed.read(len(ZSTD))
    if start == ZSTD:
        raise NotUnpacked("it is packed with zstd")
    found = hashlib.sha256()

    def put(data: bytes) -> None:
        found.update(data)
        file.write(data)
        watch()

    inner_images.checked(content, digest, _Unzipper(put) if start.startswith(GZIP) else put)
    return f"sha256:{found.hexdigest()}"


class _Unzipper:
    """Unzips what it is called with, and passes it on in small pieces: its full size is not known."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put
        self._zip = zlib.decompressobj(_ANY_HEADER)

    def __call__(self, data: bytes) -> None:
        try:
            while data:
                self._put(self._zip.decompress(data, STEP))
                data = self._zip.unconsumed_tail
                if self._zip.eof:
                    # A gzip file may consist of several, one after the other.
                    data = self._zip.unused_data.lstrip(b"\0")
                    self._zip = zlib.decompressobj(_ANY_HEADER)
        except zlib.error as error:
            raise MoorageError(f"a layer in the node image is damaged: {error}") from error
