"""The file format of containerd's databases (bbolt): nested buckets of keys and values.

A file is read as a whole, and written anew as a whole. The content is not trusted: an attacker may have made it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final, Union

from moorage.common.errors import MoorageError

PAGE: Final = 4096
MAGIC: Final = 0xED0CDAED
VERSION: Final = 2
# More than containerd needs for thousands of images.
MOST_ITEMS: Final = 1 << 20
DEEPEST: Final = 32
_BRANCH: Final = 0x01
_LEAF: Final = 0x02
_META: Final = 0x04
_FREELIST: Final = 0x10
_IS_BUCKET: Final = 1
_HEADER: Final = struct.Struct("<QHHI")
_META_DATA: Final = struct.Struct("<IIIIQQQQQ")
_BRANCH_ITEM: Final = struct.Struct("<IIQ")
_LEAF_ITEM: Final = struct.Struct("<IIII")
_BUCKET: Final = struct.Struct("<QQ")
_SUM: Final = struct.Struct("<Q")

Value = Union[bytes, "Bucket"]


@dataclass
class Bucket:
    """Keys with values or inner buckets. `sequence` is the last number that was given in it."""

    sequence: int = 0
    items: dict[bytes, Value] = field(default_factory=dict)

    def bucket(self, *names: str) -> Bucket:
        """The bucket at this path, made if needed."""
        here = self
        for name in names:
            there = here.items.setdefault(name.encode(), Bucket())
            if not isinstance(there, Bucket):
                raise MoorageError(f"{name!r} is no bucket in containerd's database")
            here = there
        return here

    def find(self, *names: str) -> Bucket | None:
        here: Value | None = self
        for name in names:
            here = here.items.get(name.encode()) if isinstance(here, Bucket) else None
        return here if isinstance(here, Bucket) else None

    def value(self, name: str) -> bytes:
        """The value of a key; empty if there is none."""
        found = self.items.get(name.encode(), b"")
        return found if isinstance(found, bytes) else b""

    def text(self, name: str) -> str:
        return self.value(name).decode(errors="surrogateescape")

    def buckets(self) -> dict[str, Bucket]:
        found = self.items.items()
        return {key.decode(errors="surrogateescape"): item for key, item in found if isinstance(item, Bucket)}

    def set(self, name: str, value: bytes | str) -> None:
        self.items[name.encode()] = value.encode(errors="surrogateescape") if isinstance(value, str) else value


def read(data: bytes) -> Bucket:
    """The outermost bucket of a file; a MoorageError if this is no database, or a damaged one."""
    try:
        return _Reader(data).root()
    except (struct.error, IndexError, RecursionError) as error:
        raise MoorageError(f"containerd's database is damaged: {error}") from error


def checksum(data: bytes | memoryview) -> int:
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        # Slices of it are not copied.
        self.data = memoryview(data)
        self.left = MOST_ITEMS
        self.page_size = 0

    def root(self) -> Bucket:
        metas = [meta for meta in map(self._meta, self._meta_places()) if meta]
        if not metas:
            raise MoorageError("this is no database of containerd's, or it is damaged")
        _, self.page_size, root, sequence = max(metas)
        bucket = Bucket(sequence)
        self._tree(root, bucket, DEEPEST)
        return bucket

    def _meta_places(self) -> list[int]:
        # The second one begins the second page, but only the first one has the size of pages.
        return [0, *(1 << shift for shift in range(9, 17))]

    def _meta(self, place: int) -> tuple[int, int, int, int] | None:
        start = place + _HEADER.size
        known = self.data[start : start + _META_DATA.size]
        tail = self.data[start + _META_DATA.size : start + _META_DATA.size + _SUM.size]
        if len(known) < _META_DATA.size or len(tail) < _SUM.size:
            return None
        magic, version, page_size, _, root, sequence, _, _, txid = _META_DATA.unpack(known)
        good = magic == MAGIC and version == VERSION and 512 <= page_size <= 1 << 16
        return (txid, page_size, root, sequence) if good and _SUM.unpack(tail)[0] == checksum(known) else None

    def _tree(self, page: int, into: Bucket, depth: int) -> None:
        start = page * self.page_size
        self._page(self.data[start:], into, depth, start)

    def _page(self, page: memoryview, into: Bucket, depth: int, start: int) -> None:
        if not depth:
            raise MoorageError("containerd's database is nested too deep")
        _, flags, count, _ = _HEADER.unpack_from(page)
        self.left -= count + 1
        if self.left < 0:
            raise MoorageError("containerd's database has too many entries")
        if flags == _BRANCH:
            for index in range(count):
                _, _, child = _BRANCH_ITEM.unpack_from(page, _HEADER.size + index * _BRANCH_ITEM.size)
                self._tree(child, into, depth - 1)
        elif flags == _LEAF:
            for index in range(count):
                self._item(page, _HEADER.size + index * _LEAF_ITEM.size, into, depth)
        else:
            raise MoorageError(f"containerd's database has a page of kind {flags} at {start}")

    def _item(self, page: memoryview, place: int, into: Bucket, depth: int) -> None:
        flags, position, key_size, value_size = _LEAF_ITEM.unpack_from(page, place)
        begin = place + position
        key = bytes(page[begin : begin + key_size])
        value = page[begin + key_size : begin + key_size + value_size]
        if len(key) < key_size or len(value) < value_size:
            raise MoorageError("containerd's database ends too early")
        into.items[key] = self._bucket(value, depth) if flags & _IS_BUCKET else bytes(value)

    def _bucket(self, value: memoryview, depth: int) -> Bucket:
        root, sequence = _BUCKET.unpack_from(value)
        bucket = Bucket(sequence)
        if root:
            self._tree(root, bucket, depth - 1)
        else:
            self._page(value[_BUCKET.size :], bucket, depth - 1, 0)
        return bucket


def write(root: Bucket) -> bytes:
    """A file with this outermost bucket. The same buckets always give the same bytes."""
    return _Writer().file(root)


class _Writer:
    """Writes each bucket as one leaf of any length. A small bucket is a part of the leaf that names it."""

    def __init__(self) -> None:
        # Two pages of metadata, and one with the list of free pages, which is empty.
        self.pages: list[bytes] = [b"", b"", self._padded(_HEADER.pack(2, _FREELIST, 0, 0))]
        self.next = 3

    def file(self, root: Bucket) -> bytes:
        place = self._place(self._leaf(root))
        for number in (0, 1):
            meta = _META_DATA.pack(MAGIC, VERSION, PAGE, 0, place, root.sequence, 2, self.next, number)
            body = _HEADER.pack(number, _META, 0, 0) + meta + _SUM.pack(checksum(meta))
            self.pages[number] = self._padded(body)
        return b"".join(self.pages)

    def _leaf(self, bucket: Bucket) -> bytes:
        """The leaf of a bucket: a page without its number."""
        items = [(key, *self._value(item)) for key, item in sorted(bucket.items.items())]
        if len(items) >= 0xFFFF:
            raise MoorageError("containerd's database has too many entries in one bucket")
        heads, bodies = b"", b""
        for index, (key, flags, value) in enumerate(items):
            position = (len(items) - index) * _LEAF_ITEM.size + len(bodies)
            heads += _LEAF_ITEM.pack(flags, position, len(key), len(value))
            bodies += key + value
        return _HEADER.pack(0, _LEAF, len(items), 0) + heads + bodies

    def _value(self, item: Value) -> tuple[int, bytes]:
        if isinstance(item, bytes):
            return 0, item
        leaf = self._leaf(item)
        small = len(leaf) <= PAGE // 4 and not any(isinstance(inner, Bucket) for inner in item.items.values())
        if small:
            return _IS_BUCKET, _BUCKET.pack(0, item.sequence) + leaf
        return _IS_BUCKET, _BUCKET.pack(self._place(leaf), item.sequence)

    def _place(self, leaf: bytes) -> int:
        number = self.next
        count = -(-len(leaf) // PAGE)
        _, flags, items, _ = _HEADER.unpack_from(leaf)
        self.pages.append(self._padded(_HEADER.pack(number, flags, items, count - 1) + leaf[_HEADER.size :]))
        self.next += count
        return number

    @staticmethod
    def _padded(page: bytes) -> bytes:
        return page + bytes(-len(page) % PAGE)
