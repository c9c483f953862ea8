"""What a tar file says of the files in it: their headers, one after the other, and none of it longer than it may be.

Python's tarfile takes a header for as long as it says that it is, reads it at once, and keeps all that there were. So a
few packed KB could become all of root's memory.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from moorage.common.errors import MoorageError

# A header with all that goes before it: names, and attributes, of which the kernel takes 64 KiB.
LONGEST: Final = 1 << 20
# What one header has on average at most: the rest is for a few.
EACH: Final = 1 << 12
BLOCK: Final = 1 << 20


class Source(Protocol):
    """A file, or what can only be read from its first byte to its last."""

    def read(self, size: int, /) -> bytes | None: ...
    def seekable(self) -> bool: ...
    def seek(self, place: int, /) -> int: ...


@contextmanager
def members(source: Source) -> Iterator[Iterator[tarfile.TarInfo]]:
    """What a tar file holds, from where it begins; a MoorageError where it makes no sense."""
    try:
        reader = _Reader(source)
        with tarfile.open(fileobj=reader, mode="r:", errors="surrogateescape") as tar:  # type: ignore[call-overload]
            yield _each(tar, reader)
    except (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError) as error:
        raise MoorageError(f"this is no tar file that can be read: {error}") from error


def _each(tar: tarfile.TarFile, reader: _Reader) -> Iterator[tarfile.TarInfo]:
    while member := tar.next():
        # Go's archive/tar, with which all others read layers, knows no header for all that follow either.
        tar.pax_headers = {}
        tar.members.clear()  # type: ignore[attr-defined]
        yield member
        reader.allow(EACH)


class _Reader:
    """The file as tarfile sees it: what it reads are headers, what lies between them it passes over, forwards."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._place = 0
        self._left = LONGEST

    def allow(self, more: int) -> None:
        self._left = min(self._left + more, LONGEST)

    def tell(self) -> int:
        return self._place

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self._left:
            raise MoorageError("this is no tar file that can be read: its headers are longer than they may be")
        self._left -= size
        return b"".join(self._pieces(size))

    def seek(self, place: int) -> None:
        if place < self._place:
            raise MoorageError("this is no tar file that can be read: it leads back to where it has been")
        if self._source.seekable():
            self._place = self._source.seek(place)
        else:
            for _ in self._pieces(place - self._place):
                pass

    def _pieces(self, size: int) -> Iterator[bytes]:
        while size and (piece := self._source.read(min(size, BLOCK))):
            size -= len(piece)
            self._place += len(piece)
            yield piece
