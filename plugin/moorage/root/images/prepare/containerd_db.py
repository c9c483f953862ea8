"""Containerd's databases in a node image: the images that they list, and entries for layers that are unpacked.

The schema is that of containerd 1.7 to 2.4: buckets in two files, one of containerd and one of its snapshotter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from moorage.common.errors import MoorageError
from moorage.root.images.prepare.bbolt import Bucket

ROOT: Final = "var/lib/containerd"
DATABASE: Final = f"{ROOT}/io.containerd.metadata.v1.bolt/meta.db"
BLOBS: Final = f"{ROOT}/io.containerd.content.v1.content/blobs/sha256"
SNAPSHOTTER: Final = "overlayfs"
SNAPSHOTS: Final = f"{ROOT}/io.containerd.snapshotter.v1.{SNAPSHOTTER}"
SCHEMA: Final = "v1"
NEWEST: Final = 4
NAMESPACE: Final = "k8s.io"
COMMITTED: Final = b"\x03"
LAYER_LABEL: Final = "containerd.io/gc.ref.content.l."
SNAPSHOT_LABEL: Final = f"containerd.io/gc.ref.snapshot.{SNAPSHOTTER}"
# Seconds from the year 1, where Go begins to count, until 1970.
_EPOCH: Final = 62135596800


@dataclass(frozen=True)
class Snapshot:
    """An unpacked layer. `key` is the digest of it with all layers below, `number` is the name of its directory."""

    key: str
    name: str
    number: int
    parent: str


class Database:
    """Both databases. `moment` is the time of all entries that are added."""

    def __init__(self, known: Bucket, snapshots: Bucket, moment: int) -> None:
        version, _ = unsigned(known.bucket(SCHEMA).value("version"))
        if not version or signed(version) > NEWEST:
            what = f"this containerd writes version {signed(version)} of its database, and {NEWEST} is the newest known"
            raise MoorageError(f"{what}: use the image as it is", code="M-IMAGE-12")
        self.known, self.snapshots = known, snapshots
        self._moment = timestamp(moment)

    @property
    def _namespace(self) -> Bucket:
        return self.known.bucket(SCHEMA, NAMESPACE)

    @property
    def _blobs(self) -> Bucket:
        return self._namespace.bucket("content", "blob")

    def images(self) -> dict[str, str]:
        """The digest of each image, by name."""
        images = self._namespace.bucket("images").buckets()
        return {name: image.bucket("target").text("digest") for name, image in images.items()}

    def unpacked(self) -> dict[str, Snapshot]:
        """The unpacked layers by key."""
        theirs = self.snapshots.bucket(SCHEMA, "snapshots").buckets()
        found = {}
        for key, entry in self._namespace.bucket("snapshots", SNAPSHOTTER).buckets().items():
            backend = theirs.get(entry.text("name"))
            if backend and backend.value("kind") == COMMITTED:
                number, _ = unsigned(backend.value("id"))
                found[key] = Snapshot(key, entry.text("name"), number, entry.text("parent"))
        return found

    def add(self, key: str, parent: Snapshot | None, inodes: int, size: int) -> Snapshot:
        """Add an unpacked layer to both databases. The snapshotter's sequence gives the directory's number."""
        ours = self._namespace.bucket("snapshots", SNAPSHOTTER)
        theirs = self.snapshots.bucket(SCHEMA, "snapshots")
        ours.sequence += 1
        theirs.sequence += 1
        name = f"{NAMESPACE}/{ours.sequence}/{key}"
        entry, backend = ours.bucket(key), theirs.bucket(name)
        entry.set("name", name)
        backend.set("id", encoded(theirs.sequence))
        backend.set("kind", COMMITTED)
        backend.set("inodes", encoded(inodes * 2))
        backend.set("size", encoded(size * 2))
        for bucket in (entry, backend):
            bucket.set("createdat", self._moment)
            bucket.set("updatedat", self._moment)
        made = Snapshot(key, name, theirs.sequence, parent.key if parent else "")
        if parent:
            self._descend(parent, made, entry, backend)
        return made

    def detach(self, snapshot: Snapshot) -> None:
        """Remove the parent of a snapshot, which has all files of the parent by now."""
        parent = self.unpacked()[snapshot.parent]
        ours = self._namespace.bucket("snapshots", SNAPSHOTTER)
        ours.bucket(parent.key, "children").items.pop(snapshot.key.encode(), None)
        for bucket in (ours.bucket(snapshot.key), self.snapshots.bucket(SCHEMA, "snapshots", snapshot.name)):
            bucket.items.pop(b"parent", None)
        self.snapshots.bucket(SCHEMA, "parents").items.pop(_pair(parent, snapshot), None)

    def point(self, config: str, key: str) -> None:
        """Note that the image with this configuration needs the snapshot, so that containerd keeps it."""
        self._blobs.bucket(config, "labels").set(SNAPSHOT_LABEL, key)

    def remove_packed(self, layers: set[str]) -> None:
        """Remove the entries of packed layers whose files were removed, as containerd does itself."""
        for digest in layers:
            self._blobs.items.pop(digest.encode(), None)
        for blob in self._blobs.buckets().values():
            labels = blob.find("labels")
            for name in list(labels.items) if labels else ():
                if labels and name.startswith(LAYER_LABEL.encode()) and labels.text(name.decode()) in layers:
                    del labels.items[name]

    def _descend(self, parent: Snapshot, child: Snapshot, entry: Bucket, backend: Bucket) -> None:
        entry.set("parent", parent.key)
        backend.set("parent", parent.name)
        self._namespace.bucket("snapshots", SNAPSHOTTER, parent.key, "children").set(child.key, b"")
        self.snapshots.bucket(SCHEMA, "parents").items[_pair(parent, child)] = child.name.encode()


def timestamp(moment: int) -> bytes:
    """A time as Go writes it: a version, seconds, nanoseconds, and a zone of -1 for UTC."""
    return b"\x01" + (moment + _EPOCH).to_bytes(8, "big") + bytes(4) + b"\xff\xff"


def encoded(number: int) -> bytes:
    """A number with seven bits in each byte, the lowest first (varint)."""
    digits = list(_digits(number))
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])


def unsigned(data: bytes) -> tuple[int, int]:
    """Read a varint: the number, and the number of its bytes; 0 and 0 if there is none."""
    value = 0
    for index, byte in enumerate(data[:10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, index + 1
    return 0, 0


def signed(number: int) -> int:
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


def _digits(number: int) -> Iterator[int]:
    yield number & 0x7F
    while number := number >> 7:
        yield number & 0x7F


def _pair(parent: Snapshot, child: Snapshot) -> bytes:
    return encoded(parent.number) + b"\0" + encoded(child.number)
