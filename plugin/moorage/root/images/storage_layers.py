"""The layers of the store's images, as Podman's library keeps and describes them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from moorage.common.errors import MoorageError

_ID: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Layer:
    """One layer. `digest` is that of its uncompressed tar file."""

    id: str
    parent: str
    digest: str
    size: int
    graph: Path

    @classmethod
    def parse(cls, entry: Mapping[str, Any], graph: Path) -> Self:
        # The id becomes part of a path.
        if not _ID.fullmatch(str(entry.get("id"))):
            raise MoorageError(f"{graph} has a layer {str(entry.get('id'))[:80]!r}, which is no id of a layer")
        return cls(
            entry["id"], entry.get("parent") or "", entry.get("diff-digest") or "", entry.get("diff-size") or 0, graph
        )

    @property
    def place(self) -> Path:
        return self.graph / "overlay" / self.id

    @property
    def files(self) -> Path:
        return self.place / "diff"

    @property
    def recipe(self) -> Path:
        """The recipe to rebuild the layer's tar file from its files (tar-split)."""
        return self.graph / "overlay-layers" / f"{self.id}.tar-split.gz"


def layers(graph: Path) -> dict[str, Layer]:
    """All complete layers by id. The library lists a layer before it has unpacked it."""
    entries = _read(graph / "overlay-layers" / "layers.json")
    found = (Layer.parse(entry, graph) for entry in entries if not (entry.get("flags") or {}).get("incomplete"))
    return {layer.id: layer for layer in found}


def chain(graph: Path, image: str) -> list[Layer]:
    """The layers of an image, the lowest first."""
    entries = _read(graph / "overlay-images" / "images.json")
    tops = [entry.get("layer") for entry in entries if entry.get("id") == image]
    known = layers(graph)
    found: list[Layer] = []
    at = tops[0] if tops else ""
    while at:
        # The second visit of a layer shows a circle.
        if at not in known or known[at] in found:
            raise MoorageError(
                f"image {image[:12]} lacks its layer {at[:12]}: remove it, and add it again", code="M-STORE-6"
            )
        found.append(known[at])
        at = known[at].parent
    if not found:
        raise MoorageError(f"image {image[:12]} has no layers")
    return found[::-1]


def config(graph: Path, image: str) -> bytes:
    """The configuration of an image. Its digest is the image's id."""
    if not _ID.fullmatch(image):
        raise MoorageError(f"{image[:80]!r} is no id of an image")
    place = graph / "overlay-images" / image
    # The library stores it by its digest, encoded because a digest is no plain name.
    return (place / f"={base64.b64encode(f'sha256:{image}'.encode()).decode()}").read_bytes()


def _read(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text()) if path.exists() else []
    return found if isinstance(found, list) else []
