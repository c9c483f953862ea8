"""Verifies that images in the store are unchanged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from moorage.common.errors import MoorageError
from moorage.root.images import opaque, storage_layers, tar_split
from moorage.root.images.catalog import Image
from moorage.root.images.storage_layers import Layer

# Yields the problems of an image in the store with this directory.
Verify = Callable[[Path, Image], Iterator[str]]


def outline(graph: Path, image: Image) -> Iterator[str]:
    """The problems of an image that can be seen without reading its files."""
    try:
        chain = storage_layers.chain(graph, image.id)
        yield from _description(graph, image, chain)
    except (OSError, MoorageError) as error:
        yield str(error)
        return
    yield from (f"layer {layer.id[:12]} has lost its files" for layer in chain if not layer.files.is_dir())


def verify(graph: Path, image: Image, told: Callable[[int], None] | None = None) -> Iterator[str]:
    """The problems of an image. Every byte of it is read, and compared with its digest."""
    try:
        chain = storage_layers.chain(graph, image.id)
        yield from _description(graph, image, chain)
    except (OSError, MoorageError) as error:
        yield str(error)
        return
    for layer in chain:
        if problem := tar_split.verify(layer, told):
            yield f"layer {layer.id[:12]}: {problem}"
        yield from (f"layer {layer.id[:12]}: {problem}" for problem in _marks(layer))


def size(graph: Path, image: Image) -> int:
    """The number of bytes to read."""
    try:
        return sum(layer.size for layer in storage_layers.chain(graph, image.id))
    except (OSError, MoorageError):
        return 0


def _description(graph: Path, image: Image, chain: list[Layer]) -> Iterator[str]:
    """Compare an image with its configuration. The id is the digest of that, and it has the digests of the layers."""
    text = storage_layers.config(graph, image.id)
    if hashlib.sha256(text).hexdigest() != image.id:
        yield "its description is not the one it came with"
        return
    digests = json.loads(text).get("rootfs", {}).get("diff_ids")
    if digests != [layer.digest for layer in chain]:
        yield "its layers are not those that its description names"


def _marks(layer: Layer) -> Iterator[str]:
    for directory in opaque.directories(layer.files):
        is_opaque = opaque.attribute(directory, opaque.ROOTS) == opaque.YES
        if is_opaque and opaque.attribute(directory, opaque.USERS) != opaque.YES:
            yield f"{tar_split.shown(str(directory.relative_to(layer.files)))} is opaque for root, and not for users"
