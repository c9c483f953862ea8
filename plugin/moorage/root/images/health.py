"""Checks the node's store of images: its owner, its file system, its images, and how jobs see them."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from typing import Final

from moorage.common import node_image
from moorage.common.errors import MoorageError, UserError
from moorage.common.progress import size
from moorage.linux import mounts
from moorage.node.config.schema import Store as Settings
from moorage.node.finding import Finding
from moorage.root.images import verify as verification
from moorage.root.images import view
from moorage.root.images.catalog import Image
from moorage.root.images.storage_layers import layers
from moorage.root.images.store import Store
from moorage.root.images.view import Way

CHECK: Final = "store"
# Errors from reading files of Podman that are damaged.
DAMAGE: Final = (ValueError, TypeError, LookupError, AttributeError)
ANEW: Final = "remove the image, and add it again: moorage image --help"


def check(settings: Settings, shown_by: Callable[[], Way | None], *, every_byte: bool = False) -> Iterator[Finding]:
    """Findings about the store. An empty store is no finding."""
    store = Store.configured(settings)
    if fault := next(_place(store), None):
        yield fault
    elif view.exists(store):
        yield from _view(settings, store, shown_by)
        yield from _images(store, every_byte)


def images(store: Store) -> list[Image]:
    """The images of the store, read without Podman, which is slow and would lock the store."""
    if not view.exists(store):
        return []
    try:
        listed = json.loads((store.graph / "overlay-images" / "images.json").read_text())
        return [Image(str(entry["id"]), tuple(entry.get("names") or ()), "", 0, 0) for entry in listed]
    except DAMAGE as error:
        raise MoorageError(f"the list of images in {store.graph} is damaged ({error!r})") from error


def called(store: Store, wanted: str) -> Image | None:
    """The image of this name."""
    there = {name: image for image in images(store) for name in image.names}
    return next((there[name] for name in node_image.full_names(wanted) if name in there), None)


def holds(store: Store, wanted: str) -> bool:
    """Whether the store has an image with this name. If its list is damaged, another check reports that."""
    try:
        return called(store, wanted) is not None
    except MoorageError:
        return True


def shown(settings: Settings, found: Way | None) -> str:
    """How jobs see images, with the reason and the cost, as text."""
    if not found:
        return ""
    copied = f"each user's first job copies {_amount(Store.configured(settings))}"
    return f"{found.kind} ({found.reason}): {copied if found.kind == 'copy' else 'that takes no space'}"


def _amount(store: Store) -> str:
    try:
        return size(sum(layer.size for layer in layers(store.graph).values()))
    except (*DAMAGE, MoorageError):
        return "the store"


def _place(store: Store) -> Iterator[Finding]:
    for place in (store.path, store.graph):
        status = place.lstat() if place.exists() else None
        if status and (not stat.S_ISDIR(status.st_mode) or status.st_uid != 0 or stat.S_IMODE(status.st_mode) & 0o077):
            yield Finding(
                CHECK, f"{place} is not root's alone", f"chown root {place}; chmod 700 {place}", code="M-STORE-1"
            )
    if mounts.holding(store.path.resolve(), mounts.table()).kind == "overlay":
        cause = f"the store {store.path} lies on an overlay, on which containers cannot run"
        yield Finding(CHECK, cause, "set store.path to a directory on a disk", code="M-STORE-2")


def _view(settings: Settings, store: Store, shown_by: Callable[[], Way | None]) -> Iterator[Finding]:
    """Findings about the view: without mapped mounts, jobs copy images, if that is allowed. That takes space."""
    try:
        found = shown_by()
    except UserError as error:
        yield Finding(CHECK, error.what, error.remedy, code=error.code)
        return
    if found and found.kind == "copy" and settings.view != "copy":
        cause = f"{found.reason}, so that each user's first job copies {_amount(store)}"
        yield Finding(
            CHECK,
            cause,
            "move store.path to ext4 or XFS, or accept it with store.view: copy",
            kind="advice",
            code="M-STORE-3",
        )


def _images(store: Store, every_byte: bool) -> Iterator[Finding]:
    try:
        there = images(store)
    except MoorageError as error:
        yield Finding(CHECK, str(error), "fill the store anew", code="M-STORE-4")
        return
    verify: verification.Verify = verification.verify if every_byte else verification.outline
    for image in there:
        for problem in _problems(verify, store, image):
            yield Finding(CHECK, f"image {image.label}: {problem}", ANEW, code="M-STORE-5")


def _problems(verify: verification.Verify, store: Store, image: Image) -> Iterator[str]:
    try:
        yield from verify(store.graph, image)
    except DAMAGE as error:
        yield f"its description cannot be understood ({error!r})"
