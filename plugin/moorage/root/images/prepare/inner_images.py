"""The images inside a node image, each with its layers, the lowest first."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from moorage.common.errors import MoorageError
from moorage.root.images.prepare import containerd_db
from moorage.root.images.prepare.file_tree import Tree
from moorage.root.images.prepare.tar_entry import Content
from moorage.root.images.tar_split import shown

LARGEST_DESCRIPTION: Final = 4 << 20
MOST_MANIFESTS: Final = 1000
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Packed:
    """A layer as it was pulled: digests of the packed file, of its content (`diff`), and with all below (`key`)."""

    digest: str
    diff: str
    key: str


@dataclass(frozen=True)
class Inner:
    name: str
    config: str
    layers: tuple[Packed, ...]


def images(root: Tree, names: dict[str, str], architecture: str) -> Iterator[Inner]:
    """The images for this architecture with complete descriptions; `names` are those that containerd has."""
    for name, digest in sorted(names.items()):
        for manifest in _manifests(root, digest, architecture):
            try:
                yield _inner(root, name, manifest)
            except LookupError:
                # A description is missing, as for images of other architectures.
                continue
            except (ValueError, TypeError, AttributeError) as error:
                raise MoorageError(
                    f"the image {shown(name)} in it is described in a way that makes no sense"
                ) from error


def blob(root: Tree, digest: str) -> Content | None:
    """The file with this digest, if it exists."""
    match = _DIGEST.fullmatch(digest)
    there = root.find(f"{containerd_db.BLOBS}/{match[1]}") if match else None
    return there.entry.content if there else None


def keys(diffs: list[str]) -> list[str]:
    """Containerd's key of each layer: a digest of it with all layers below."""
    found: list[str] = []
    for diff in diffs:
        found.append(_digest(f"{found[-1]} {diff}".encode()) if found else diff)
    return found


def checked(content: Content, digest: str, told: Callable[[bytes], None]) -> None:
    """Read all of it, and raise a MoorageError if its digest differs."""
    found = hashlib.sha256()
    with content.opened() as file:
        while piece := file.read(1 << 20):
            found.update(piece)
            told(piece)
    if f"sha256:{found.hexdigest()}" != digest:
        raise MoorageError(f"{digest} in the node image is damaged", code="M-IMAGE-13")


def _manifests(root: Tree, digest: str, architecture: str) -> list[dict[str, Any]]:
    """The manifests for this architecture: of an index several, else the one itself."""
    try:
        top = _description(root, digest)
    except LookupError:
        return []
    if "manifests" not in top:
        return [top]
    found = []
    for entry in top["manifests"][:MOST_MANIFESTS]:
        platform = entry.get("platform") or {"os": "linux", "architecture": architecture}
        if (platform.get("os"), platform.get("architecture")) == ("linux", architecture):
            try:
                found.append(_description(root, entry["digest"]))
            except LookupError:
                continue
    return [manifest for manifest in found if "layers" in manifest]


def _inner(root: Tree, name: str, manifest: dict[str, Any]) -> Inner:
    config = str(manifest["config"]["digest"])
    diffs = [str(diff) for diff in _description(root, config)["rootfs"]["diff_ids"]]
    digests = [str(layer["digest"]) for layer in manifest["layers"]]
    if len(diffs) != len(digests) or not all(_DIGEST.fullmatch(one) for one in (*diffs, *digests)):
        raise ValueError(name)
    return Inner(name, config, tuple(map(Packed, digests, diffs, keys(diffs))))


def _description(root: Tree, digest: str) -> dict[str, Any]:
    content = blob(root, digest)
    if content is None:
        raise LookupError(digest)
    with content.opened() as file:
        text = file.read(LARGEST_DESCRIPTION)
    try:
        found = json.loads(text) if _digest(text) == digest else None
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise MoorageError(f"{digest} in the node image is damaged", code="M-IMAGE-13")
    return found


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
