"""What a site's administrator does on a node before its first cluster: the node image goes into the store, prepared."""

from __future__ import annotations

import shutil
from pathlib import Path

from .cache import cached
from .chroot import run_in
from .payload import IMAGE
from .progress import phase

PLACE = "var/lib/moorage/store"
FILL = Path(__file__).with_name("fill-store")
SOURCE = Path(__file__).resolve().parents[4] / "plugin/moorage"
# What decides how it comes out, of all that is installed in the tree.
IMAGES = (SOURCE / "root/images", SOURCE / "cli/image.py")


def filled(node: str, tree: Path, archive: Path) -> Path:
    """The store as Moorage in `tree` makes it, natively, which would take minutes in an emulated guest.

    `node` names what the tree was made of.
    """

    def build(place: Path) -> None:
        with phase("filling the nodes' store of images"):
            carried = tree / "tmp" / archive.name
            shutil.copy(archive, carried)
            run_in(tree, FILL, f"/tmp/{archive.name}", IMAGE, log=place.with_suffix(".log"))
            carried.unlink()
        shutil.move(tree / PLACE, place / "store")

    return cached("node-store", (node, archive.parent.name, IMAGE, FILL, *IMAGES), build) / "store"
