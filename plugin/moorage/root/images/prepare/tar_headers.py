"""Reads the headers of a tar file, one after the other, with a limit for their length.

Python's tarfile believes the length that a header claims, reads the whole header at once, and keeps all headers. So a
few packed KB could fill the memory of root.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from moorage.common.errors import MoorageError

# The limit for a header with its names and extended attributes. The kernel takes 64 KiB of attributes.
LONGEST: Final = 1 << 20
# Each further header adds so much to what may be read. So only few headers can be long.
EACH: Final = 1 << 12
BLOCK: Final = 1 << 20


class Source(Protocol):
    """A file, or a stream that cannot seek."""

    def read(self, size: int, /) -> bytes | None: ...
    def seekable(self) -> bool: ...
    def seek(self, place: int, /) -> int: ...


@contextmanager
def members(source: Source) -> Iterator[Iterator[tarfile.TarInfo]]:
    """The members of a tar file, from the first one; a MoorageError if it cannot be read."""
    try:
        reader = _Reader(source)
        with tarfile.open(fileobj=reader, mode="r:", errors="surrogateescape") as tar:  # type: ignore[call-overload]
            yield _each(tar, reader)
    except (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError) as error:
        raise MoorageError(f"this is no tar file that can be read: {error}") from error


def _each(tar: tarfile.TarFile, reader: _Reader) -> Iterator[tarfile.TarInfo]:
    while member := tar.next():
        # Global headers are ignored, as in Go's archive/tar, which all other tools use for layers.
        tar.pax_headers = {}
        tar.members.clear()  # type: ignore[attr-defined]
        yield member
        reader.allow(EACH)


class _Reader:
    """The file as tarfile sees it: it reads headers, and seeks forwards over what lies between."""

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
