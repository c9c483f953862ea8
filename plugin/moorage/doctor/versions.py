"""The versions of this node's programs: jobs on several nodes need the same ones on all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from moorage import __version__
from moorage.common.errors import MoorageError
from moorage.node import programs, shim, slurmconf
from moorage.node.checks import Scene


def of(scene: Scene) -> dict[str, str]:
    """The versions by name, without those that are missing or that this user cannot see."""
    around = scene.around
    found = {
        "kernel": os.uname().release,
        "moorage": __version__,
        "slurm": around.slurm_says,
        "shim": _shim(scene) or "",
        **around.versions,
        **dict(_clusters(scene)),
    }
    return {name: version for name, version in found.items() if version}


def _shim(scene: Scene) -> str | None:
    around = scene.around
    place = shim.place(shim.stack(slurmconf.plugstack(around.slurm_conf, around.slurm)))
    return shim.marker(place) if place and place.is_file() else None


def _clusters(scene: Scene) -> Iterator[tuple[str, str]]:
    """The programs and images of clusters. An image has its id, a digest: one name can mean several images."""
    site = scene.config.kubernetes
    if not site.images:
        return
    if program := site.kind or programs.find("kind"):
        yield "kind", programs.version(program, scene.facts)
    # Only here: a health check comes again and again.
    from moorage.doctor import kubernetes
    from moorage.root.images import health
    from moorage.root.images.store import Store

    yield "kubectl", kubernetes.kubectl(scene.facts)
    with suppress(OSError, MoorageError):
        store = Store.configured(scene.config.store)
        for name in site.images:
            if image := health.called(store, name):
                yield f"image {name}", image.id
