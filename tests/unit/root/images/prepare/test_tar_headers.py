"""Tar files made to take the memory of whoever reads them, and such as are fine."""

from __future__ import annotations

import gc
import io
import tarfile
import tracemalloc

import pytest

from moorage.common.errors import MoorageError
from moorage.root.images.prepare import tar_headers
from support.archives import Member, layer

MIB = 1 << 20
FILE = layer(Member("a", data=b"x"))


class Zeros(io.RawIOBase):
    """What is there, and then zeros, which a packed layer has for nothing: enough for a test, and for no harm."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self._left = 80 * MIB

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = min(len(buffer), self._left)
        self._left -= count
        buffer[:count] = self._data.read(count).ljust(count, b"\0")
        return count


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def extended(kind: bytes, **words: str) -> bytes:
    records = b""
    for key, value in words.items():
        rest = f" {key.replace('_', '.')}={value}\n".encode()
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length += 1
        records += str(length).encode() + rest
    return header(kind, len(records)) + records.ljust(-(-len(records) // 512) * 512, b"\0")


def sparse() -> bytes:
    """A map of many pieces, which goes before the content."""
    words = extended(tarfile.XHDTYPE, GNU_sparse_major="1", GNU_sparse_minor="0", GNU_sparse_realsize="1")
    return words + header(tarfile.REGTYPE, 64 * MIB) + b"9999999\n" + (b"0" * 99 + b"\n") * 40000


@pytest.mark.parametrize(
    "data",
    [
        *(header(kind, 64 * MIB) for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)),
        *(header(kind, 64 * MIB) for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)),
        header(tarfile.GNUTYPE_LONGNAME, -4096),
        header(tarfile.XHDTYPE, -4096),
        sparse(),
        extended(tarfile.XHDTYPE) * 1000 + FILE,
        (extended(tarfile.XHDTYPE, SCHILY_xattr_user_a="a" * (MIB // 4)) + FILE[:1024]) * 8,
    ],
    ids=["x", "g", "X", "L", "K", "negative", "negative x", "sparse", "nested", "many"],
)
def test_headers_without_end_are_refused(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MoorageError, match="this is no tar file that can be read"):
            names(Zeros(data))
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def names(source: tar_headers.Source) -> list[str]:
    with tar_headers.members(source) as found:
        return [member.name for member in found]


@pytest.fixture(params=["a file", "a stream"])
def source(request: pytest.FixtureRequest) -> tar_headers.Source:
    long = Member("n" * 4000, data=b"x" * (3 * MIB), xattrs={"user.a": "a" * 65536})
    data = layer(Member("a", data=b"first"), long, *(Member(f"b{number}") for number in range(300)))
    return io.BytesIO(data) if request.param == "a file" else Pieces(data)


class Pieces(io.RawIOBase):
    """Comes a little at a time, and only forwards."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._data.readinto(memoryview(buffer)[:1000])


def test_others_are_read_to_their_end(source: tar_headers.Source) -> None:
    assert names(source) == ["a", "n" * 4000, *(f"b{number}" for number in range(300))]


def test_a_header_for_all_that_follow_is_for_one() -> None:
    data = extended(tarfile.XGLTYPE, SCHILY_xattr_user_a="a") + FILE[:1024] + layer(Member("b"))
    with tar_headers.members(io.BytesIO(data)) as found:
        assert [member.pax_headers.get("SCHILY.xattr.user.a") for member in found] == ["a", None]


def test_nothing_of_what_was_read_is_kept() -> None:
    with tar_headers.members(io.BytesIO(layer(*(Member(f"b{number}") for number in range(100))))) as found:
        assert sum(1 for _ in zip(found, range(90), strict=False)) == 90
        assert sum(isinstance(one, tarfile.TarInfo) for one in gc.get_objects()) < 10
