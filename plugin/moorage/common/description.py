"""The description of a job on one node: the Prolog writes it as `job.json`, the job's own processes read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

from moorage import __version__
from moorage.common import job, typed_json
from moorage.common.errors import MoorageError, UserError
from moorage.common.hardware import Hardware
from moorage.common.podman import Places
from moorage.common.spec import Spec

# A field that is added leaves the number as it is: readers ignore what they do not know. A field that goes, or means
# something else, gives the next number. Descriptions of earlier releases have no number and the same fields as 1.
SCHEMA: Final = 1
UNPREPARED: Final = "tell the administrator of this node: `journalctl -t moorage` shows what its Prolog did"


@dataclass(frozen=True)
class Waits:
    """The timeouts that the job itself keeps, in seconds."""

    agents: float = 120.0
    podman: float = 120.0
    kill: float = 30.0
    # Added to `agents`: nodes beside the first may be prepared so much later.
    others: float = 0.0


@dataclass(frozen=True)
class Kubernetes:
    """The site's configuration of clusters."""

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
    """The fabric, the network that the containers of all nodes share, and this node's part of it."""

    subnet: str
    mtu: int
    # Of the one container by which this node takes part; frames to it go to this node alone.
    hardware_address: str
    # Slurm's names of all participants, in the job's order.
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class WayOut:
    """The job's end of the gateway, for the uplink `kernel`."""

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
    waits: Waits = field(metadata=typed_json.key("wait"))
    kubernetes: Kubernetes
    places: Places = field(metadata=typed_json.outside())
    hardware: Hardware = field(default_factory=Hardware)
    # The number of participants. This node is the one at `place`, counted from 0.
    nodes: int = 1
    place: int = 0
    fabric: Segment | None = None
    gateway: WayOut | None = None
    # The rest is for people: root's record of the job has most of it.
    uplink_reason: str = ""
    runtime: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    # The first id of each range, and how many ids it has.
    subuids: tuple[tuple[int, int], ...] = ()
    subgids: tuple[tuple[int, int], ...] = ()

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
            raise UserError(
                f"the Prolog has not prepared this node for job {number}", UNPREPARED, code="M-JOB-9"
            ) from None
        except ValueError as error:
            raise UserError(
                f"{places.run / 'job.json'} is not understood ({error})", UNPREPARED, code="M-JOB-10"
            ) from error

    @classmethod
    def of_this_job(cls, environ: Mapping[str, str]) -> Self:
        return cls.load(this_job(environ))

    @classmethod
    def from_dict(cls, fields: object, places: Places) -> Self:
        """A ValueError that names what is missing or wrong."""
        number = fields.get("schema", SCHEMA) if isinstance(fields, dict) else SCHEMA
        if number != SCHEMA:
            raise ValueError(f"its schema is {number}, and Moorage {__version__} reads schema {SCHEMA}")
        return typed_json.decode(cls, fields, places=places)

    def as_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **typed_json.encode(self)}

    @property
    def hosts(self) -> tuple[str, ...]:
        """Slurm's names of all participants; the first has the cluster's control plane."""
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
        raise UserError(
            "this is no job of Slurm's", "use it in a job that was submitted with --k8s", code="M-JOB-11"
        ) from None
