"""What is told to containerd, in the bytes in which it would have written it itself."""

from __future__ import annotations

import hashlib

import pytest

from moorage.common.errors import MoorageError
from moorage.root.images.prepare.bbolt import Bucket
from moorage.root.images.prepare.containerd_db import Database, encoded, signed, timestamp, unsigned
from moorage.root.images.prepare.inner_images import keys

# What containerd 2.4 has written at 2026-11-18 16:52:56 UTC, but for the nanoseconds.
MOMENT = 1795020776
AS_GO_HAS_IT = b"\x01\x00\x00\x00\x0e\xe2\x8f\xce\xe8\x00\x00\x00\x00\xff\xff"


def database(version: bytes = b"\x08") -> Database:
    known = Bucket()
    known.bucket("v1").set("version", version)
    return Database(known, Bucket(), MOMENT)


@pytest.mark.parametrize(
    ("number", "data"), [(0, b"\0"), (1, b"\x01"), (127, b"\x7f"), (300, b"\xac\x02"), (1 << 40, b"\x80" * 5 + b"\x20")]
)
def test_numbers(number: int, data: bytes) -> None:
    assert encoded(number) == data
    assert unsigned(data) == (number, len(data))


def test_numbers_without_end_are_none() -> None:
    assert unsigned(b"\xff" * 20) == unsigned(b"") == (0, 0)
    assert [signed(number) for number in (0, 1, 2, 3, 8)] == [0, -1, 1, -2, 4]


def test_times() -> None:
    assert timestamp(MOMENT) == AS_GO_HAS_IT


def test_a_layer_and_one_upon_it() -> None:
    made = database()
    first = made.add("sha256:a", None, 20, 4096)
    second = made.add("sha256:b", first, 3, 64)
    assert (first.name, first.number, second.name, second.number) == ("k8s.io/1/sha256:a", 1, "k8s.io/2/sha256:b", 2)
    entry = made.snapshots.bucket("v1", "snapshots", second.name)
    assert {key: value for key, value in entry.items.items() if not key.endswith(b"at")} == {
        b"id": b"\x02", b"kind": b"\x03", b"parent": first.name.encode(), b"inodes": b"\x06", b"size": b"\x80\x01",
    }  # fmt: skip
    assert made.snapshots.bucket("v1", "parents").items == {b"\x01\x00\x02": second.name.encode()}
    ours = made.known.bucket("v1", "k8s.io", "snapshots", "overlayfs")
    assert ours.sequence == 2
    assert ours.bucket("sha256:a", "children").items == {b"sha256:b": b""}
    assert made.unpacked() == {"sha256:a": first, "sha256:b": second}


def test_a_layer_that_stands_on_nothing_any_more() -> None:
    made = database()
    first = made.add("sha256:a", None, 1, 1)
    made.detach(made.add("sha256:b", first, 1, 1))
    assert made.unpacked()["sha256:b"].parent == ""
    assert made.snapshots.bucket("v1", "parents").items == {}
    assert made.known.bucket("v1", "k8s.io", "snapshots", "overlayfs", "sha256:a", "children").items == {}


def test_what_is_dropped_is_pointed_to_by_nobody() -> None:
    made = database()
    blobs = made.known.bucket("v1", "k8s.io", "content", "blob")
    labels = blobs.bucket("sha256:manifest", "labels")
    labels.set("containerd.io/gc.ref.content.config", "sha256:config")
    labels.set("containerd.io/gc.ref.content.l.0", "sha256:gone")
    labels.set("containerd.io/gc.ref.content.l.1", "sha256:kept")
    for name in ("sha256:gone", "sha256:kept", "sha256:config"):
        blobs.bucket(name)
    made.remove_packed({"sha256:gone"})
    made.point("sha256:config", "sha256:key")
    assert set(blobs.items) == {b"sha256:manifest", b"sha256:kept", b"sha256:config"}
    assert set(labels.items) == {b"containerd.io/gc.ref.content.config", b"containerd.io/gc.ref.content.l.1"}
    assert blobs.bucket("sha256:config", "labels").text("containerd.io/gc.ref.snapshot.overlayfs") == "sha256:key"


@pytest.mark.parametrize("version", [b"", b"\x0a", b"\xff" * 3, b"\xff" * 20])
def test_a_schema_that_nobody_knows_is_refused(version: bytes) -> None:
    with pytest.raises(MoorageError, match="use the image as it is"):
        database(version)


def test_keys_are_chains_of_digests() -> None:
    first, second = "sha256:" + "1" * 64, "sha256:" + "2" * 64
    assert keys([]) == []
    assert keys([first]) == [first]
    assert keys([first, second])[1] == f"sha256:{hashlib.sha256(f'{first} {second}'.encode()).hexdigest()}"
