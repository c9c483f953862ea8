"""The images of the store and their names, as Podman lists them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from moorage.common.errors import UserError
from moorage.common.node_image import full_names

SHORTEST_ID: Final = 6
SHOWN_ID: Final = 12


@dataclass(frozen=True)
class Image:
    id: str
    names: tuple[str, ...]
    digest: str
    size: int
    created: int

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Self:
        # If an image does not have a value, Podman omits it or prints null.
        names = tuple(entry.get("Names") or ())
        size, created = int(entry.get("Size") or 0), int(entry.get("Created") or 0)
        return cls(str(entry["Id"]), names, str(entry.get("Digest") or ""), size, created)

    @property
    def label(self) -> str:
        return self.names[0] if self.names else self.id[:SHOWN_ID]


def parse(said: str) -> list[Image]:
    """The images in the output of `podman images --format json`. One with several names may appear several times."""
    found: dict[str, Image] = {}
    for entry in json.loads(said or "[]"):
        image = Image.parse(entry)
        known = found.get(image.id, image)
        found[image.id] = Image(image.id, _together(known.names, image.names), image.digest, image.size, image.created)
    return list(found.values())


def find(images: Iterable[Image], wanted: str) -> Image:
    """The only image with this name, or with an id that begins so."""
    images = list(images)
    named = [image for image in images if set(full_names(wanted)) & set(image.names)]
    by_id = [image for image in images if len(wanted) >= SHORTEST_ID and image.id.startswith(wanted)]
    match named or by_id:
        case [image]:
            return image
        case []:
            raise UserError(
                f"the store has no image {wanted}", "`moorage image list` shows what it has", code="M-IMAGE-10"
            )
        case _:
            raise UserError(
                f"more than one image is called {wanted}", "give a full name, or more of its id", code="M-IMAGE-11"
            )


def moved(before: Iterable[Image], after: Iterable[Image]) -> dict[str, str]:
    """The names that meant another image before, each with the id of that one."""
    owners = {name: image.id for image in before for name in image.names}
    now = {name: image.id for image in after for name in image.names}
    return {name: owner for name, owner in owners.items() if name in now and now[name] != owner}


def new(before: Iterable[Image], after: Iterable[Image]) -> list[Image]:
    known = {image.id for image in before}
    return [image for image in after if image.id not in known]


def unnamed(images: Iterable[Image]) -> list[Image]:
    return [image for image in images if not image.names]


def _together(*names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))
