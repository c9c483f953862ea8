"""Checks for clusters, if the configuration names a node image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from moorage.common import node_image
from moorage.common.errors import UserError
from moorage.node import programs
from moorage.node.config.schema import Config
from moorage.node.factcache import Facts
from moorage.node.finding import Finding
from moorage.root.images import health
from moorage.root.images.store import Store

CHECK: Final = "kubernetes"
# The oldest kind whose configuration and messages Moorage knows.
OLDEST_KIND: Final = (0, 33)
# In minor releases, as Kubernetes promises for kubectl.
FARTHEST_APART: Final = 1


def check(images: Iterable[str], named: Path | None, facts: Facts) -> Iterator[Finding]:
    """The checks that every user can make: names of images, the programs kind and kubectl."""
    offered: list[node_image.Version] = []
    for image in images:
        try:
            offered.append(node_image.version(image))
        except UserError as error:
            yield Finding(CHECK, error.what, error.remedy, code=error.code)
    yield from _kind(named, facts)
    yield from _kubectl(offered, facts)


def image(wanted: str, config: Config) -> Iterator[Finding]:
    """Whether the node image is in the store; only root can look."""
    archive = config.kubernetes.archive
    if health.holds(Store.configured(config.store), wanted):
        return
    if archive is None:
        yield Finding(
            CHECK, f"the store has no image {wanted}", "moorage image add, then moorage image prepare", code="M-KUBE-5"
        )
    elif not archive.is_file():
        cause = f"kubernetes.archive: there is no {archive}"
        yield Finding(CHECK, cause, f"put it there, or add {wanted} to the store", code="M-KUBE-6")


def _kind(named: Path | None, facts: Facts) -> Iterator[Finding]:
    program = programs.find(named.name, named.parent) if named else programs.find("kind")
    if program is None or (named and program != named):
        yield Finding(
            CHECK,
            f"there is no program {named or 'kind'}",
            "install it, or name it in kubernetes.kind",
            code="M-KUBE-7",
        )
        return
    said = programs.version(program, facts)
    if programs.number(said) < OLDEST_KIND:
        cause = f"{program} is {said or 'silent about its version'}"
        yield Finding(CHECK, cause, f"install kind {programs.shown(OLDEST_KIND)} or newer", code="M-KUBE-8")


def kubectl(facts: Facts) -> str:
    """The version of this node's kubectl, if it has one. A job's script uses the one of its cluster's image."""
    program = programs.find("kubectl")
    return programs.version(program, facts, "version", "--client") if program else ""


def _kubectl(offered: Iterable[node_image.Version], facts: Facts) -> Iterator[Finding]:
    has = programs.number(said := kubectl(facts))
    for wanted in offered:
        if has and (has[0] != wanted[0] or abs(has[1] - wanted[1]) > FARTHEST_APART):
            cause = f"kubectl says {said}, which is too far from Kubernetes {programs.shown(wanted)}"
            yield Finding(CHECK, cause, f"install kubectl {programs.shown(wanted[:2])}", kind="advice", code="M-KUBE-9")
            return
