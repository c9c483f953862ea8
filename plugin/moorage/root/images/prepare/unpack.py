"""How the images in a node image are unpacked: each of their layers once, below /kind/layers."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

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
# What one read of a packed layer may become in memory.
STEP: Final = 1 << 20
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS


class NotUnpacked(MoorageError):
    """An image that has to stay as it is."""


@dataclass
class Unpacker:
    """Moves layers out of `root`, the tree of a node image, and writes them to `pack`."""

    root: Tree
    pack: Pack
    database: Database
    workshop: Path
    watch: Callable[[], None]
    # Each unpacked layer with all below it, for those above that remove something of it.
    whole: dict[str, Tree] = field(default_factory=dict)
    left_packed: list[str] = field(default_factory=list)

    def unpack(self, images: list[Inner]) -> None:
        """All of them; a packed layer goes when no image that stayed packed needs it."""
        self._move()
        # Whatever else the image has there is in the way.
        self.root.remove(PLACE)
        done: set[str] = set()
        needed: set[str] = set()
        for image in images:
            digests = {layer.digest for layer in image.layers}
            try:
                self._image(image)
                done |= digests
            except NotUnpacked as error:
                self.left_packed.append(f"{image.name}: {error}")
                needed |= digests
        gone = done - needed
        for digest in gone:
            self.root.remove(f"{containerd_db.BLOBS}/{digest.removeprefix('sha256:')}")
        self.database.forget(gone)

    def _image(self, image: Inner) -> None:
        below: Snapshot | None = None
        for layer in image.layers:
            there = self.database.unpacked().get(layer.key)
            below = there or self._layer(layer, below)
        if below:
            self.database.point(image.config, below.key)

    def _layer(self, layer: Packed, below: Snapshot | None) -> Snapshot:
        with self._plain(layer) as file:
            upper = _tree(file, layer.key)
            stands_on, own = self._placed(upper, below)
            number = self.database.snapshots.bucket(containerd_db.SCHEMA, "snapshots").sequence + 1
            entries, size = self.pack.add(own, f"{PLACE}/{number}")
        made = self.database.add(layer.key, stands_on, entries, size)
        self.whole[made.key] = file_tree.over(self.whole[below.key], upper) if below else own
        self._link(made)
        return made

    def _placed(self, upper: Tree, below: Snapshot | None) -> tuple[Snapshot | None, Tree]:
        """What removes something of the layers below is written with all of them, and stands on nothing.

        The node's own overlay would take an inner one's marks for its own, and hide them (seen on Linux 6.18).
        """
        if below and upper.removes():
            return None, file_tree.over(self.whole[below.key], upper)
        return below, upper

    def _move(self) -> None:
        """Layers that came unpacked go to the same place as those that did not."""
        unpacked = self.database.unpacked()
        for snapshot in sorted(unpacked.values(), key=lambda one: one.number):
            files = self._files(snapshot)
            below = self.whole.get(snapshot.parent)
            if snapshot.parent and below is None:
                raise MoorageError(f"the node image lacks what its unpacked layer {snapshot.number} stands on")
            whole = file_tree.over(below, files) if below else files
            if below and files.removes():
                self.database.orphan(snapshot)
                self.pack.add(whole, f"{PLACE}/{snapshot.number}")
            else:
                self.pack.add(files, f"{PLACE}/{snapshot.number}")
            self.whole[snapshot.key] = whole
            self._link(snapshot)

    def _files(self, snapshot: Snapshot) -> Tree:
        """Where containerd has them, or where an earlier preparation has put them."""
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
        """The layer as a plain tar file, for a while; both of its digests are right."""
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
    """Write what a layer holds; its digest."""
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
    """Passes on what comes packed, a little at a time: nobody knows how large it will be."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put
        self._zip = zlib.decompressobj(_ANY_HEADER)

    def __call__(self, data: bytes) -> None:
        try:
            while data:
                self._put(self._zip.decompress(data, STEP))
                data = self._zip.unconsumed_tail
                if self._zip.eof:
                    # A packed file may be several, one after the other.
                    data = self._zip.unused_data.lstrip(b"\0")
                    self._zip = zlib.decompressobj(_ANY_HEADER)
        except zlib.error as error:
            raise MoorageError(f"a layer in the node image is damaged: {error}") from error
