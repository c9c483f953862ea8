"""Rebuilds the tar file of a layer from its files and the recipe that Podman's library has kept (tar-split).

When the library unpacks a tar file, it stores everything that lies between the contents of files. So a layer can be
compared with its digest, and names, owners and attributes are those of the tar file, and not those on disk.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from moorage.common.errors import MoorageError
from moorage.linux import beneath
from moorage.root.images.storage_layers import Layer

BLOCK: Final = 1 << 20
# One line of a recipe holds all that lies between two files.
LONGEST_LINE: Final = 64 << 20


class Stream(io.RawIOBase):
    """The bytes of the tar file, from the first to the last."""

    def __init__(self, pieces: Iterator[bytes], read: Callable[[int], None] | None = None) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self._hash = hashlib.sha256()
        self._told = read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._hash.update(piece)
            self._rest = memoryview(piece)
        count = min(len(self._rest), len(buffer))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        if self._told:
            self._told(count)
        return count

    def finish(self) -> str:
        """Read the rest; the digest of the whole."""
        while self.read(BLOCK):
            pass
        return f"sha256:{self._hash.hexdigest()}"


@contextmanager
def opened(layer: Layer, told: Callable[[int], None] | None = None) -> Iterator[Stream]:
    with beneath.opened(layer.files) as files:
        yield Stream(_pieces(layer, files), told)


def verify(layer: Layer, told: Callable[[int], None] | None = None) -> str:
    """The reason why the layer's files are not those of its digest; empty if they are."""
    try:
        with opened(layer, told) as stream:
            found = stream.finish()
    except (OSError, MoorageError) as error:
        return str(error)
    return "" if found == layer.digest else f"its files make {found}, not {layer.digest or 'any digest that is known'}"


def _pieces(layer: Layer, files: int) -> Iterator[bytes]:
    for entry in _entries(layer.recipe):
        match entry.get("type"):
            case 2:  # bytes between the contents of files
                yield _decoded(layer, entry.get("payload"))
            case 1 if entry.get("size"):
                yield from _content(layer, files, _name(layer, entry), int(entry["size"]))


def _entries(recipe: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(recipe, "rb") as lines:
            while line := lines.readline(LONGEST_LINE):
                yield json.loads(line)
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise MoorageError(f"{recipe} is damaged: {error}") from error


def _decoded(layer: Layer, payload: object) -> bytes:
    try:
        return base64.b64decode(str(payload or ""), validate=True)
    except binascii.Error as error:
        raise MoorageError(f"{layer.recipe} is damaged: {error}") from error


def _name(layer: Layer, entry: dict[str, Any]) -> str:
    raw = entry.get("name_raw")
    return os.fsdecode(_decoded(layer, raw)) if raw else str(entry.get("name", ""))


def _content(layer: Layer, files: int, name: str, size: int) -> Iterator[bytes]:
    """The content of a file, exactly as many bytes as in the tar file; otherwise a MoorageError."""
    left = size
    with os.fdopen(_opened(layer, files, name), "rb", buffering=0) as file:
        while left:
            piece = file.read(min(left, BLOCK))
            if not piece:
                raise MoorageError(f"{shown(name)} is shorter than it was")
            left -= len(piece)
            yield piece


def _opened(layer: Layer, files: int, name: str) -> int:
    try:
        return beneath.regular(files, plain(name))
    except (OSError, ValueError) as error:
        raise MoorageError(f"{shown(name)} of layer {layer.id[:12]} is not there any more") from error


def plain(name: str) -> str:
    """The path below the top of the tree that a name in a tar file means."""
    return os.path.normpath(f"/{name}").lstrip("/") or "."


def shown(name: str) -> str:
    """A name that anybody may have chosen, fit for a line of output."""
    return ascii(name[:200])
