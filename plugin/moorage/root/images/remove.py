"""How an image leaves the store: its names at once, its files when nobody can be using them."""

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
    """No job that starts from now on finds it."""
    if image.names:
        store.podman("untag", image.id)


def sweep(store: Store) -> Waiting:
    """Remove the files of images without a name.

    A layer must not go while an overlay stands on it: what is seen there then is undefined.
    """
    there = store.images()
    gone = tuple(catalog.unnamed(there))
    if gone and (jobs := store.viewers()):
        return Waiting(gone, tuple(jobs))
    if gone:
        user_copies.remove_all(store)
    for image in gone:
        store.podman("rmi", "--force", image.id, limit=LIMIT)
    _forget(store, {image.id for image in there} - {image.id for image in gone})
    return Waiting()


def _forget(store: Store, known: set[str]) -> None:
    """What was written down of images that are gone, also in the middle of their preparation."""
    for record in store.records.glob("*.json"):
        if record.stem not in known:
            record.unlink()
