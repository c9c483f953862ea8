"""containerd's database: written and read again, and read where somebody meant harm."""

from __future__ import annotations

import random
import struct

import pytest

from moorage.common.errors import MoorageError
from moorage.root.images.prepare.bbolt import MAGIC, PAGE, Bucket, checksum, read, write


def sample(count: int = 3) -> Bucket:
    root = Bucket(7)
    for number in range(count):
        inner = root.bucket("v1", f"bucket{number:05}")
        inner.sequence = number
        inner.set("key", b"value" * (number % 40))
        inner.set("empty", b"")
    root.bucket("v1").set("large", bytes(3 * PAGE))
    return root


@pytest.mark.parametrize("root", [Bucket(), Bucket(3), sample(0), sample(3), sample(5000)])
def test_what_is_written_is_read(root: Bucket) -> None:
    data = write(root)
    assert read(data) == root
    assert write(read(data)) == data
    assert len(data) % PAGE == 0


def test_the_later_of_both_headers_counts() -> None:
    data = bytearray(write(sample()))
    other = bytearray(write(Bucket()))
    assert read(bytes(data)) == sample()
    # The first header says another number of the write, and so the other content.
    data[PAGE : 2 * PAGE] = bytes(PAGE)
    assert read(bytes(data)) == sample()
    data[0:PAGE] = bytes(PAGE)
    with pytest.raises(MoorageError, match="no database"):
        read(bytes(data))
    assert read(bytes(other)) == Bucket()


def test_buckets_are_found_by_path() -> None:
    root = sample()
    assert root.bucket("v1", "bucket00002").value("key") == b"valuevalue"
    assert root.find("v1", "missing", "more") is None
    assert root.find("v1", "large") is None
    assert root.bucket("v1").text("missing") == ""
    with pytest.raises(MoorageError, match="is no bucket"):
        root.bucket("v1", "large")


@pytest.mark.parametrize("data", [b"", b"x" * 10, bytes(2 * PAGE), b"\xff" * 3 * PAGE])
def test_what_is_no_database(data: bytes) -> None:
    with pytest.raises(MoorageError, match="no database"):
        read(data)


def refuses(data: bytes) -> bool:
    """Anything else than a refusal fails the test."""
    try:
        read(data)
    except MoorageError:
        return True
    return False


def test_any_byte_may_be_wrong() -> None:
    data = write(sample())
    chance = random.Random(1)  # noqa: S311
    refused = 0
    for _ in range(500):
        broken = bytearray(data)
        for _ in range(chance.randint(1, 8)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        refused += refuses(bytes(broken))
    assert refused > 5


@pytest.mark.parametrize("length", range(0, 6 * PAGE, 777))
def test_it_may_end_anywhere(length: int) -> None:
    with pytest.raises(MoorageError):
        read(write(sample(50))[:length])


def with_root_page(page: bytes) -> bytes:
    meta = struct.pack("<IIIIQQQQQ", MAGIC, 2, PAGE, 0, 3, 0, 2, 4, 1)
    head = struct.pack("<QHHI", 0, 4, 0, 0) + meta + struct.pack("<Q", checksum(meta))
    return head.ljust(PAGE, b"\0") * 2 + bytes(PAGE) + page.ljust(PAGE, b"\0")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        # A branch that leads to itself, many times.
        (struct.pack("<QHHI", 3, 1, 200, 0) + struct.pack("<IIQ", 16, 0, 3) * 200, "nested too deep|too many"),
        # A bucket that is its own parent.
        (
            struct.pack("<QHHI", 3, 2, 1, 0) + struct.pack("<IIII", 1, 16, 1, 16) + b"k" + struct.pack("<QQ", 3, 0),
            "nested too deep",
        ),
        (struct.pack("<QHHI", 3, 2, 1, 0) + struct.pack("<IIII", 0, 16, 1 << 31, 1 << 31), "ends too early"),
        (struct.pack("<QHHI", 3, 2, 60000, 0), "ends too early|damaged"),
        (struct.pack("<QHHI", 3, 1, 1, 0) + struct.pack("<IIQ", 16, 0, 1 << 60), "damaged"),
        (struct.pack("<QHHI", 3, 16, 1, 0), "page of kind 16"),
    ],
)
def test_pages_that_lead_nowhere(page: bytes, words: str) -> None:
    with pytest.raises(MoorageError, match=words):
        read(with_root_page(page))


def test_the_checksum_is_the_known_one() -> None:
    assert checksum(b"") == 0xCBF29CE484222325
    assert checksum(b"a") == 0xAF63DC4C8601EC8C
