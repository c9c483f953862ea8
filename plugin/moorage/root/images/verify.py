"""Whether what lies in the store is still what was put there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from moorage.common.errors import MoorageError
from moorage.root.images import opaque, storage_layers, tar_split
from moorage.root.images.catalog import Image
from moorage.root.images.storage_layers import Layer

# Tells what is wrong with an image of the store in this directory.
Verify = Callable[[Path, Image], Iterator[str]]


def outline(graph: Path, image: Image) -> Iterator[str]:
    """What is wrong with an image as far as it shows without reading its files."""
    try:
        chain = storage_layers.chain(graph, image.id)
        yield from _description(graph, image, chain)
    except (OSError, MoorageError) as error:
        yield str(error)
        return
    yield from (f"layer {layer.id[:12]} has lost its files" for layer in chain if not layer.files.is_dir())


def verify(graph: Path, image: Image, told: Callable[[int], None] | None = None) -> Iterator[str]:
    """What is wrong with an image: every byte of it is read, and compared with its digest."""
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
    """How many bytes there are to read."""
    try:
        return sum(layer.size for layer in storage_layers.chain(graph, image.id))
    except (OSError, MoorageError):
        return 0


def _description(graph: Path, image: Image, chain: list[Layer]) -> Iterator[str]:
    """An image's id is the digest of its description, which names the layers by theirs."""
    text = storage_layers.config(graph, image.id)
    if hashlib.sha256(text).hexdigest() != image.id:
        yield "its description is not the one it came with"
        return
    digests = json.loads(text).get("rootfs", {}).get("diff_ids")
    if digests != [layer.digest for layer in chain]:
        yield "its layers are not those that its description names"


def _marks(layer: Layer) -> Iterator[str]:
    for directory in opaque.directories(layer.files):
        hides = opaque.attribute(directory, opaque.ROOTS) == opaque.YES
        if hides and opaque.attribute(directory, opaque.USERS) != opaque.YES:
            yield f"{tar_split.shown(str(directory.relative_to(layer.files)))} does not hide for users what it hides"
