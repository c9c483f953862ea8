"""What containerd knows of the images in a node image, and how it is told that they are unpacked.

Its schema is that of containerd 1.7 to 2.4: buckets in two files, one of its own and one of its snapshotter's.
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
# Seconds from the year 1, where Go begins to count, to 1970.
_EPOCH: Final = 62135596800


@dataclass(frozen=True)
class Snapshot:
    """An unpacked layer: `key` is the digest of it and all below it, `number` names its directory."""

    key: str
    name: str
    number: int
    parent: str


class Database:
    """Both files; `moment` is when everything that is added was made."""

    def __init__(self, known: Bucket, snapshots: Bucket, moment: int) -> None:
        version, _ = unsigned(known.bucket(SCHEMA).value("version"))
        if not version or signed(version) > NEWEST:
            what = f"this containerd writes version {signed(version)} of its database, and {NEWEST} is the newest known"
            raise MoorageError(f"{what}: use the image as it is")
        self.known, self.snapshots = known, snapshots
        self._moment = timestamp(moment)

    @property
    def _namespace(self) -> Bucket:
        return self.known.bucket(SCHEMA, NAMESPACE)

    @property
    def _blobs(self) -> Bucket:
        return self._namespace.bucket("content", "blob")

    def images(self) -> dict[str, str]:
        """The digest that each name stands for."""
        images = self._namespace.bucket("images").buckets()
        return {name: image.bucket("target").text("digest") for name, image in images.items()}

    def unpacked(self) -> dict[str, Snapshot]:
        """The layers that are unpacked already, by key."""
        theirs = self.snapshots.bucket(SCHEMA, "snapshots").buckets()
        found = {}
        for key, entry in self._namespace.bucket("snapshots", SNAPSHOTTER).buckets().items():
            backend = theirs.get(entry.text("name"))
            if backend and backend.value("kind") == COMMITTED:
                number, _ = unsigned(backend.value("id"))
                found[key] = Snapshot(key, entry.text("name"), number, entry.text("parent"))
        return found

    def add(self, key: str, parent: Snapshot | None, inodes: int, size: int) -> Snapshot:
        """Tell both sides of a layer; the directory's number is up to the snapshotter's count."""
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

    def orphan(self, snapshot: Snapshot) -> None:
        """From now on it stands on nothing: it has all that its parent has."""
        parent = self.unpacked()[snapshot.parent]
        ours = self._namespace.bucket("snapshots", SNAPSHOTTER)
        ours.bucket(parent.key, "children").items.pop(snapshot.key.encode(), None)
        for bucket in (ours.bucket(snapshot.key), self.snapshots.bucket(SCHEMA, "snapshots", snapshot.name)):
            bucket.items.pop(b"parent", None)
        self.snapshots.bucket(SCHEMA, "parents").items.pop(_pair(parent, snapshot), None)

    def point(self, config: str, key: str) -> None:
        """The image of this configuration needs this snapshot: it must not be cleared away."""
        self._blobs.bucket(config, "labels").set(SNAPSHOT_LABEL, key)

    def forget(self, layers: set[str]) -> None:
        """Packed layers that are there no more, and that nothing needs: as where containerd discards them itself."""
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
    """As Go writes it: a version, seconds, nanoseconds, and a zone of -1 for UTC."""
    return b"\x01" + (moment + _EPOCH).to_bytes(8, "big") + bytes(4) + b"\xff\xff"


def encoded(number: int) -> bytes:
    """Seven bits to a byte, the lowest first."""
    digits = list(_digits(number))
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])


def unsigned(data: bytes) -> tuple[int, int]:
    """A number so written, and how many bytes it took; 0 and 0 where there is none."""
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
