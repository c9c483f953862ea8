"""The nodes of a job that take part: the first of them, as many as its user wishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moorage.common.errors import UserError
from moorage.common.job import Job
from moorage.common.spec import Spec

# Each has a part of the container network of its own.
MOST: Final = 254


@dataclass(frozen=True)
class Fleet:
    """Slurm's names of them, in its order, which is the same on all."""

    nodes: tuple[str, ...]
    # Of this node among them, counted from 0; None where it takes no part.
    place: int | None = 0

    @property
    def alone(self) -> bool:
        return len(self.nodes) == 1


def of(job: Job, spec: Spec, environ: Mapping[str, str]) -> Fleet:
    """By what slurmd tells a Prolog; a UserError if the user wishes for what cannot be."""
    if environ.get("SLURM_HET_JOB_ID"):
        raise heterogeneous()
    nodes = _nodes(job, environ)
    wanted = spec.nodes or len(nodes)
    if wanted > len(nodes):
        remedy = f"submit with --nodes={wanted}, or ask for nodes={len(nodes)} or leave it out"
        raise UserError(f"nodes={wanted} is more than this job has, which is {len(nodes)}", remedy)
    if wanted > MOST:
        raise UserError(f"{wanted} nodes are more than --k8s can join", f"ask for nodes={MOST} or fewer")
    taking_part = nodes[:wanted]
    return Fleet(taking_part, taking_part.index(job.node) if job.node in taking_part else None)


def heterogeneous() -> UserError:
    """Its parts are several jobs to Slurm, of which each has nodes of its own."""
    return UserError("this job is heterogeneous, and --k8s is for jobs of one part", "submit it as one part")


def _nodes(job: Job, environ: Mapping[str, str]) -> tuple[str, ...]:
    text = environ.get("SLURM_JOB_NODELIST", job.node)
    if text == job.node:
        return (job.node,)
    # Only here: most jobs have one node.
    from moorage.common.nodelist import expand

    return tuple(expand(text, 1 << 16))
