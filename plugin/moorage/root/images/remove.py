"""Removes images from the store: their names at once, their files when no job can use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moorage.root.images import catalog, user_copies
from moorage.root.images.catalog import Image
from moorage.root.images.store import Store

LIMIT: Final = 600.0


@dataclass(frozen=True)
class Waiting:
    """Removed images whose files must stay, because these jobs see the store."""

    images: tuple[Image, ...] = ()
    jobs: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return sum(image.size for image in self.images)


def unname(store: Store, image: Image) -> None:
    """Remove all names of an image. Jobs that start from now on do not find it."""
    if image.names:
        store.podman("untag", image.id)


def sweep(store: Store) -> Waiting:
    """Remove images without a name, unless jobs see the store now.

    A layer must not be removed while an overlay uses it: the content of that would be undefined.
    """
    there = store.images()
    gone = tuple(catalog.unnamed(there))
    if gone and (jobs := store.viewers()):
        return Waiting(gone, tuple(jobs))
    if gone:
        user_copies.remove_all(store)
    for image in gone:
        store.podman("rmi", "--force", image.id, limit=LIMIT)
    _remove_records(store, {image.id for image in there} - {image.id for image in gone})
    return Waiting()


def _remove_records(store: Store, known: set[str]) -> None:
    """Remove the records of images that do not exist any more, also of interrupted preparations."""
    for record in store.records.glob("*.json"):
        if record.stem not in known:
            record.unlink()
