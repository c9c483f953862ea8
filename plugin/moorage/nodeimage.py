"""The image that a cluster's node is made of: it is there, or there is an archive of it; nothing is fetched."""

from __future__ import annotations

from typing import Final

from moorage import phases
from moorage.container import Container
from moorage.errors import UserError
from moorage.phases import Course

ADMINISTRATOR: Final = "tell the administrator of this node"


def provide(node: Container, image: str, course: Course) -> None:
    """In the job's own storage or in a store that it sees; else out of an archive, which takes its time."""
    if _is_there(node, image, course):
        return
    archive = node.mooring.kubernetes.archive
    if not archive:
        raise UserError(f"there is no image {image} on this node", f"{ADMINISTRATOR}: `moorage image add`")
    course.begin(phases.LOADING)
    node.podman("load", "--quiet", f"--input={archive}", limit=course.deadline.left)
    if not _is_there(node, image, course):
        raise UserError(f"there is no image {image} in {archive}", f"{ADMINISTRATOR}: kubernetes.image")


def _is_there(node: Container, image: str, course: Course) -> bool:
    return node.podman("image", "exists", image, limit=course.deadline.left, ok=(0, 1)).code == 0
