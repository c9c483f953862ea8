"""The tar file of a layer, put together again out of its files and the recipe that Podman's library has kept.

The library writes down what lay between the contents of files when it unpacked the tar file (tar-split). Read this
way, a layer is again what its digest was made of: names, owners and marks are those of the tar file, whatever became of
them on disk.
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
# One line of a recipe holds at most what lies between two files.
LONGEST_LINE: Final = 64 << 20


class Stream(io.RawIOBase):
    """The bytes of the tar file, from its first to its last; `digest` is of what has been read so far."""

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
        """The digest of the whole."""
        while self.read(BLOCK):
            pass
        return f"sha256:{self._hash.hexdigest()}"


@contextmanager
def opened(layer: Layer, told: Callable[[int], None] | None = None) -> Iterator[Stream]:
    with beneath.opened(layer.files) as files:
        yield Stream(_pieces(layer, files), told)


def verify(layer: Layer, told: Callable[[int], None] | None = None) -> str:
    """What is wrong with the layer's files; empty if they are those it was made of."""
    try:
        with opened(layer, told) as stream:
            found = stream.finish()
    except (OSError, MoorageError) as error:
        return str(error)
    return "" if found == layer.digest else f"its files make {found}, not {layer.digest or 'any digest that is known'}"


def _pieces(layer: Layer, files: int) -> Iterator[bytes]:
    for entry in _entries(layer.recipe):
        match entry.get("type"):
            case 2:  # what lies between contents
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
    """As many bytes as the tar file had, or a refusal."""
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
    """A name in a tar file as a path below the top of its tree."""
    return os.path.normpath(f"/{name}").lstrip("/") or "."


def shown(name: str) -> str:
    """Fit for a line of output, whoever chose it."""
    return ascii(name[:200])
