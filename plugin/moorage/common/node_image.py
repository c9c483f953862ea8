"""Names of node images, and the Kubernetes that they hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moorage.common.errors import UserError

# The first whose API server can keep strangers out of everything but its health.
OLDEST: Final = (1, 32)

Version = tuple[int, ...]

_VERSION: Final = re.compile(r":v(\d+\.\d+(?:\.\d+)?)[^:/@]*(?:@sha256:[0-9a-f]{64})?$")


def version(image: str, wanted: str | None = None) -> Version:
    """The Kubernetes in the image, which its tag says; a UserError if that cannot do, or is not what was wanted."""
    found = _VERSION.search(image)
    if not found:
        raise UserError(
            f"the tag of node image {image} names no version",
            "give it one: kubernetes.image: NAME:v1.36.3",
            code="M-KUBE-2",
        )
    has = tuple(map(int, found[1].split(".")))
    if has < OLDEST:
        raise UserError(
            f"{image} is too old: its API cannot be closed to strangers",
            "take Kubernetes 1.32 or newer",
            code="M-KUBE-3",
        )
    if wanted and not _is(has, wanted):
        raise UserError(
            f"this node has Kubernetes {found[1]} and not {wanted}", f"ask for version={found[1]}", code="M-KUBE-4"
        )
    return has


def chosen(images: Sequence[str], wanted: str) -> str:
    """The first of the site's images that is this Kubernetes; a UserError that names those that there are."""
    offered = {image: version(image) for image in images}
    for image, has in offered.items():
        if _is(has, wanted):
            return image
    there = [".".join(map(str, has)) for has in offered.values()]
    what = f"this node has Kubernetes {' and '.join(there)} and not {wanted}"
    raise UserError(what, f"ask for {' or '.join(f'version={one}' for one in there)}", code="M-KUBE-4")


def _is(has: Version, wanted: str) -> bool:
    """1.36.3 is a 1.36, too."""
    return has[: wanted.count(".") + 1] == tuple(map(int, wanted.split(".")))


HOME: Final = "localhost/"

# Where the images are that most people call by a short name.
ELSEWHERE: Final = "docker.io/"

_TAGGED: Final = re.compile(r":[^/:@]+(?=@)")

_OFFICIAL: Final = re.compile(r"^docker\.io/(?=[^/]+$)")


def full_names(name: str) -> tuple[str, ...]:
    """Those that it can stand for, in the order in which Podman looks; of a tag and a digest the digest counts.

    By the first of them Podman keeps what it is told to call so.
    """
    tagged = _TAGGED.sub("", name) if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"
    domain, slash, _ = tagged.partition("/")
    complete = slash and (domain == "localhost" or {".", ":"} & set(domain))
    homes = ("",) if complete else (HOME, ELSEWHERE)
    return tuple(_OFFICIAL.sub(f"{ELSEWHERE}library/", home + tagged) for home in homes)
