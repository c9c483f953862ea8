"""The image that a cluster's node is made of: it is there, or there is an archive of it; nothing is fetched."""

from __future__ import annotations

from typing import Final

from moorage.common import node_image
from moorage.common.errors import UserError
from moorage.user.cluster import kind_progress
from moorage.user.cluster.kind_progress import Course
from moorage.user.cluster.node_container import Container

ADMINISTRATOR: Final = "tell the administrator of this node"


def provide(node: Container, image: str, course: Course) -> str:
    """Its full name in the job's own storage or in a store that it sees; else out of an archive, which takes its time.

    kind takes a short name for one of Docker's registry alone, and would fetch what it does not find there.
    """
    if name := _name(node, image, course):
        return name
    archive = node.mooring.kubernetes.archive
    if not archive:
        raise UserError(f"there is no image {image} on this node", f"{ADMINISTRATOR}: `moorage image add`")
    course.begin(kind_progress.LOADING)
    node.podman("load", "--quiet", f"--input={archive}", limit=course.deadline.left)
    if name := _name(node, image, course):
        return name
    raise UserError(f"there is no image {image} in {archive}", f"{ADMINISTRATOR}: kubernetes.image")


def _name(node: Container, image: str, course: Course) -> str | None:
    return next((name for name in node_image.full_names(image) if _is_there(node, name, course)), None)


def _is_there(node: Container, name: str, course: Course) -> bool:
    return node.podman("image", "exists", name, limit=course.deadline.left, ok=(0, 1)).code == 0
