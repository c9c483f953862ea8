"""The state of a job on this node: what root remembers from the Prolog to the Epilog, through crashes and power cuts.

A thing is written into the state before it is made, so everything that exists can be found. Only root writes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from moorage.common import job as places
from moorage.common.errors import MoorageError
from moorage.common.files import create, private
from moorage.common.job import Job
from moorage.linux.cgroup import Usage
from moorage.linux.process import Process
from moorage.root import journal, lock

if TYPE_CHECKING:
    from moorage.node.config.schema import Config
    from moorage.root.net.fabric import Fabric
    from moorage.root.net.gateway import Gateway

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# docs/compatibility.md says when it rises. A file without a number has the first one.
SCHEMA: Final = 1


class Phase(StrEnum):
    PREPARED = "prepared"
    DELEGATED = "delegated"
    ENDED = "ended"


@dataclass(frozen=True)
class Scratch:
    """The place of the job's scratch: a directory or an image file; empty if it is in memory."""

    kind: str
    source: str


@dataclass(frozen=True)
class Limits:
    """The limits of the containers, in bytes and counts, and timeouts, in seconds."""

    memory_reserve: int
    processes: int
    cgroups: int
    depth: int
    lend_wait: float
    kill_wait: float
    epilog: float

    @classmethod
    def of(cls, config: Config) -> Self:
        return cls(
            memory_reserve=config.reserve.memory,
            processes=config.pids_max,
            cgroups=config.cgroup_max_descendants,
            depth=config.cgroup_max_depth,
            lend_wait=config.wait.placeholder,
            kill_wait=config.wait.kill,
            epilog=config.epilog_limit,
        )


@dataclass(frozen=True)
class About:
    """For the job's record: what the Prolog knew, for how many days it is kept, the directory of metrics."""

    begun: float
    described: dict[str, Any]
    days: int
    metrics: str | None


@dataclass(frozen=True)
class State:
    job: Job
    boot: str
    # The process that is responsible for the job now: first the Prolog, then the warden.
    owner: Process
    limits: Limits
    scratch: Scratch | None = None
    phase: Phase = Phase.PREPARED
    agent: Process | None = None
    lender: Process | None = None
    # The delegated cgroup; it may exist once it is named here.
    tree: Path | None = None
    usage: Usage | None = None
    # The job's networks on this node; their links and rules may exist once they are named here.
    fabric: Fabric | None = None
    gateway: Gateway | None = None
    about: About | None = None
    # Whether the job's record is written: there is only one.
    recorded: bool = False

    @classmethod
    def begin(
        cls,
        job: Job,
        limits: Limits,
        scratch: Scratch | None = None,
        fabric: Fabric | None = None,
        gateway: Gateway | None = None,
        about: About | None = None,
    ) -> Self:
        return cls(job, boot_id(), Process.current(), limits, scratch, fabric=fabric, gateway=gateway, about=about)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        if (schema := fields.get("schema", 1)) > SCHEMA:
            raise ValueError(f"schema {schema} is of a later release")
        return cls(
            job=Job.from_dict(fields["job"]),
            boot=fields["boot"],
            owner=Process(**fields["owner"]),
            limits=Limits(**fields["limits"]),
            scratch=_maybe(fields["scratch"], lambda scratch: Scratch(**scratch)),
            phase=Phase(fields["phase"]),
            agent=_maybe(fields["agent"], lambda agent: Process(**agent)),
            lender=_maybe(fields["lender"], lambda lender: Process(**lender)),
            tree=_maybe(fields["tree"], Path),
            usage=_maybe(fields["usage"], lambda usage: Usage(**usage)),
            fabric=_maybe(fields.get("fabric"), _fabric),
            gateway=_maybe(fields.get("gateway"), _gateway),
            # A job that an earlier release started ends with this release's Epilog.
            about=_maybe(fields.get("about"), lambda about: About(**about)),
            recorded=fields.get("recorded", False),
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "schema": SCHEMA,
            "job": self.job.as_dict(),
            "tree": str(self.tree) if self.tree else None,
            "fabric": self.fabric.as_dict() if self.fabric else None,
            "gateway": self.gateway.as_dict() if self.gateway else None,
        }

    @property
    def networked(self) -> bool:
        """Whether the job has anything in this node's own network."""
        return bool(self.fabric or self.gateway)

    def changed(self, **fields: Any) -> Self:  # noqa: ANN401
        """The state with these changes, which are on disk before it is returned."""
        state = replace(self, **fields)
        state.save()
        return state

    def noted(self, **fields: Any) -> Self:  # noqa: ANN401
        """The same, but a failure to save is only logged: users can fill the disk."""
        state = replace(self, **fields)
        try:
            state.save()
        except OSError as error:
            message = f"the state of the job cannot be written: {error}"
            journal.log(message, phase="state", job=self.job, priority=journal.ERROR)
        return state

    def save(self) -> None:
        """Save it. After a power cut the file has this state or the one before."""
        path = self.job.state
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        half = path.with_name(f".{path.name}")
        half.unlink(missing_ok=True)
        create(half, json.dumps(self.as_dict()), 0o600)
        _sync(half)
        half.rename(path)
        _sync(path.parent)

    @property
    def this_boot(self) -> bool:
        return self.boot == boot_id()

    @property
    def abandoned(self) -> bool:
        """Whether no responsible process is alive: then the job has to be cleaned up."""
        responsible = (self.owner, self.agent, lock.heir(self.job.id))
        return not self.this_boot or not any(process.alive for process in responsible if process)


def load(job: int) -> State | None:
    """The state of this job, if it has one on this node."""
    path = places.state_file(job)
    try:
        return State.from_dict(json.loads(private(path)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise MoorageError(
            f"{path} cannot be understood ({error!r}): find by hand what it named", code="M-LEFT-10"
        ) from error


def forget(job: int) -> None:
    """Remove the state. The caller holds the job's lock."""
    path = places.state_file(job)
    for name in (path, path.with_name(f".{path.name}")):
        name.unlink(missing_ok=True)


def jobs() -> list[int]:
    """The jobs that have a state on this node."""
    return sorted(_numbers(places.STATE, ".json"))


def _numbers(directory: Path, suffix: str) -> Iterator[int]:
    with suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            name = entry.name.removesuffix(suffix)
            if entry.name.endswith(suffix) and name.isascii() and name.isdigit():
                yield int(name)


def boot_id() -> str:
    return BOOT_ID.read_text().strip()


# These import a lot, and most jobs have neither.


def _fabric(fields: dict[str, Any]) -> Fabric:
    from moorage.root.net.fabric import Fabric

    return Fabric.from_dict(fields)


def _gateway(fields: dict[str, Any]) -> Gateway:
    from moorage.root.net.gateway import Gateway

    return Gateway.from_dict(fields)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _maybe(value: Any, make: Any) -> Any:  # noqa: ANN401
    return None if value is None else make(value)
