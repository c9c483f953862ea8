"""The participants of a job: its first nodes, as many as the user asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moorage.common.errors import UserError
from moorage.common.job import Job
from moorage.common.spec import Spec

# Each participant has its own part of the containers' network.
MOST: Final = 254


@dataclass(frozen=True)
class Participants:
    """The nodes by Slurm's names, in Slurm's order, which is the same on all nodes."""

    nodes: tuple[str, ...]
    # The index of this node; None where it does not take part.
    place: int | None = 0

    @property
    def alone(self) -> bool:
        return len(self.nodes) == 1


def of(job: Job, spec: Spec, environ: Mapping[str, str]) -> Participants:
    """Read them from a Prolog's environment; raise a UserError if the user asks for what is not possible."""
    if environ.get("SLURM_HET_JOB_ID"):
        raise heterogeneous()
    nodes = _nodes(job, environ)
    wanted = spec.nodes or len(nodes)
    if wanted > len(nodes):
        remedy = f"submit with --nodes={wanted}, or ask for nodes={len(nodes)} or leave it out"
        raise UserError(f"nodes={wanted} is more than this job has, which is {len(nodes)}", remedy, code="M-JOB-12")
    if wanted > MOST:
        raise UserError(
            f"{wanted} nodes are more than --k8s can join", f"ask for nodes={MOST} or fewer", code="M-JOB-13"
        )
    taking_part = nodes[:wanted]
    return Participants(taking_part, taking_part.index(job.node) if job.node in taking_part else None)


def heterogeneous() -> UserError:
    """To Slurm, each part of such a job is a job with its own nodes."""
    return UserError(
        "this job is heterogeneous, and --k8s is for jobs of one part", "submit it as one part", code="M-JOB-14"
    )


def _nodes(job: Job, environ: Mapping[str, str]) -> tuple[str, ...]:
    text = environ.get("SLURM_JOB_NODELIST", job.node)
    if text == job.node:
        return (job.node,)
    # Imported only here: most jobs have one node.
    from moorage.common.nodelist import expand

    return tuple(expand(text, 1 << 16))
