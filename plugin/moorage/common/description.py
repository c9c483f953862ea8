"""What a job knows of itself: the description that the node's root has left in its run directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

from moorage.common import job
from moorage.common.errors import MoorageError, UserError
from moorage.common.hardware import Hardware
from moorage.common.podman import Places
from moorage.common.spec import Spec

UNPREPARED: Final = "tell the administrator of this node: `journalctl -t moorage` shows what its Prolog did"


@dataclass(frozen=True)
class Waits:
    """The longest waits, in seconds."""

    agents: float = 120.0
    podman: float = 120.0
    kill: float = 30.0
    # So much longer than for agents, until nodes beside the first are prepared.
    others: float = 0.0


@dataclass(frozen=True)
class Kubernetes:
    """What the site has settled for clusters."""

    image: str | None = None
    archive: str | None = None
    kind: str | None = None
    etcd: Literal["memory", "disk"] = "memory"
    pods: str = "10.244.0.0/16"
    services: str = "10.96.0.0/16"
    reserve: int = 512 << 20
    least_cpus: int = 2
    least_memory: int = 3 << 30
    patience: float = 1.0


@dataclass(frozen=True)
class Segment:
    """The network that the containers of all nodes share, and what this node's have there."""

    subnet: str
    mtu: int
    # Of the one container by which this node takes part; frames to it go to this node alone.
    hardware_address: str
    # Every node's, in the job's order: Slurm's names.
    hosts: tuple[str, ...]

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["subnet"], fields["mtu"], fields["hardware_address"], tuple(fields["hosts"]))


@dataclass(frozen=True)
class WayOut:
    """What the job's end of the uplink `kernel` needs."""

    address: str
    router: str
    mtu: int


@dataclass(frozen=True)
class Mooring:
    """One job on one node."""

    job: int
    restart: int
    node: str
    spec: Spec
    podman: Path
    uplink: str
    srun: Path | None
    waits: Waits
    kubernetes: Kubernetes
    places: Places
    hardware: Hardware = field(default_factory=Hardware)
    # So many take part, of which this one is at `place`, counted from 0.
    nodes: int = 1
    place: int = 0
    fabric: Segment | None = None
    gateway: WayOut | None = None

    @classmethod
    def load(cls, number: int) -> Self:
        """The job's description; a MoorageError with the Prolog's refusal if that left one."""
        places = Places(job.run_directory(number))
        if line := refusal(places):
            raise MoorageError(line)
        try:
            fields = json.loads((places.run / "job.json").read_text())
            return cls.from_dict(fields, places)
        except FileNotFoundError:
            raise UserError(f"the Prolog has not prepared this node for job {number}", UNPREPARED) from None
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{places.run / 'job.json'} is not understood ({error})", UNPREPARED) from error

    @classmethod
    def of_this_job(cls, environ: Mapping[str, str]) -> Self:
        return cls.load(this_job(environ))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], places: Places) -> Self:
        return cls(
            job=fields["job"],
            restart=fields["restart"],
            node=fields["node"],
            spec=Spec.from_dict(fields["spec"]),
            podman=Path(fields["podman"]),
            uplink=fields["uplink"],
            srun=Path(fields["srun"]) if fields.get("srun") else None,
            waits=Waits(**{name: float(value) for name, value in fields.get("wait", {}).items()}),
            kubernetes=Kubernetes(**fields.get("kubernetes", {})),
            places=places,
            hardware=Hardware.from_dict(fields.get("hardware", {})),
            nodes=fields.get("nodes", 1),
            place=fields.get("place", 0),
            fabric=Segment.from_dict(fabric) if (fabric := fields.get("fabric")) else None,
            gateway=WayOut(**gateway) if (gateway := fields.get("gateway")) else None,
        )

    @property
    def hosts(self) -> tuple[str, ...]:
        """All nodes that take part, by Slurm's names; the cluster's control plane is on the first."""
        return self.fabric.hosts if self.fabric else (self.node,)

    @property
    def warden(self) -> Path:
        return self.places.run / "warden.sock"


def refusal(places: Places) -> str:
    """Why this node does not serve the job; empty if it does."""
    try:
        return (places.run / "refusal").read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""


def this_job(environ: Mapping[str, str]) -> int:
    try:
        return job.job_number(environ)
    except MoorageError:
        raise UserError("this is no job of Slurm's", "use it in a job that was submitted with --k8s") from None
