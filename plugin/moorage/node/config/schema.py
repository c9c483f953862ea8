"""The site's configuration: what may be set, what it is unless set, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from moorage.common.spec import UPLINKS
from moorage.node.config.values import (
    GIB,
    MIB,
    Reader,
    absolute_path,
    addresses,
    choice,
    choices,
    count,
    factor,
    host_rule,
    image,
    images,
    interface,
    names,
    network,
    networks,
    phrase,
    ports,
    seconds,
    size,
    subnet,
)

DEFAULT: Final = "default"

ScratchKind = Literal["loop", "tmpfs", "project", "directory"]
NodeFault = Literal["fail", "drain"]
EtcdStorage = Literal["memory", "disk"]
ViewKind = Literal["auto", "idmap", "copy"]
Preference = Literal["measure", "order"]


Kind = TypeVar("Kind")


def read(reader: Reader) -> dict[str, Reader]:
    """Makes a field a setting, whose value is read so."""
    return {"read": reader}


@dataclass(frozen=True)
class Policy:
    """Who may use --k8s; what is empty keeps nobody out."""

    users: tuple[str, ...] = field(default=(), metadata=read(names()))
    groups: tuple[str, ...] = field(default=(), metadata=read(names()))
    accounts: tuple[str, ...] = field(default=(), metadata=read(names()))
    partitions: tuple[str, ...] = field(default=(), metadata=read(names()))
    qos: tuple[str, ...] = field(default=(), metadata=read(names()))
    most_nodes: int | None = field(default=None, metadata=read(count(1, 1 << 16)))
    contact: str = field(default="the administrator", metadata=read(phrase()))


@dataclass(frozen=True)
class Scratch:
    """Space of its own for each job on the node's disk."""

    path: Path = field(default=Path("/var/lib/moorage/scratch"), metadata=read(absolute_path()))
    kind: ScratchKind = field(default="loop", metadata=read(choice("loop", "tmpfs", "project", "directory")))
    size: int = field(default=20 * GIB, metadata=read(size(64 * MIB, 100 << 40)))


@dataclass(frozen=True)
class Run:
    """The tmpfs of a job's run directory."""

    size: int = field(default=64 * MIB, metadata=read(size(4 * MIB, 16 * GIB)))
    inodes: int = field(default=16384, metadata=read(count(1024, 1 << 24)))


@dataclass(frozen=True)
class Store:
    """The node's images, and how jobs see them."""

    path: Path = field(default=Path("/var/lib/moorage/store"), metadata=read(absolute_path()))
    view: ViewKind = field(default="auto", metadata=read(choice("auto", "idmap", "copy")))
    keep_free: int = field(default=2 * GIB, metadata=read(size(64 * MIB, 100 << 40)))


@dataclass(frozen=True)
class Uplink:
    """How containers reach the outside."""

    allowed: tuple[str, ...] = field(default=("pasta", "slirp4netns"), metadata=read(choices(*UPLINKS)))
    by: Preference = field(default="measure", metadata=read(choice("measure", "order")))
    order: tuple[str, ...] = field(default=("kernel", "pasta", "slirp4netns"), metadata=read(choices(*UPLINKS)))
    # The rest is for the uplink `kernel`. Where it has none of its own, it takes those of the node that are elsewhere.
    resolvers: tuple[str, ...] = field(default=(), metadata=read(addresses()))
    pool: str = field(default="100.96.0.0/16", metadata=read(network(8, 24)))
    refused: tuple[str, ...] = field(default=(), metadata=read(networks()))
    connections: int = field(default=1024, metadata=read(count(16, 2048)))


@dataclass(frozen=True)
class Fabric:
    """How the nodes of a job reach each other; the same on all nodes."""

    # Unless given, the interface by which the others are reached.
    interface: str | None = field(default=None, metadata=read(interface()))
    # How the name of a node becomes its name on that interface; or a file like /etc/hosts that says so.
    host: str = field(default="{host}", metadata=read(host_rule()))
    hosts: Path | None = field(default=None, metadata=read(absolute_path()))
    subnet: str = field(default="10.89.0.0/16", metadata=read(subnet()))
    port: int = field(default=339, metadata=read(count(1, 65535)))
    source_ports: str = field(default="600-1023", metadata=read(ports()))
    flood: int = field(default=2000, metadata=read(count(10, 1 << 20)))


@dataclass(frozen=True)
class Podman:
    """What the Podman of a job takes for itself."""

    pool: str = field(default="10.88.0.0/16", metadata=read(network(8, 20)))


@dataclass(frozen=True)
class Reserve:
    """What of a job's share the containers may not take."""

    memory: int = field(default=128 * MIB, metadata=read(size(16 * MIB, 64 * GIB)))


@dataclass(frozen=True)
class Kubernetes:
    """What clusters are made of, and what they need."""

    image: str | None = field(default=None, metadata=read(image()))
    further_images: tuple[str, ...] = field(default=(), metadata=read(images()))
    archive: Path | None = field(default=None, metadata=read(absolute_path()))
    kind: Path | None = field(default=None, metadata=read(absolute_path()))
    etcd: EtcdStorage = field(default="memory", metadata=read(choice("memory", "disk")))
    # Each node has 256 addresses of the pods'.
    pods: str = field(default="10.244.0.0/16", metadata=read(network(8, 16)))
    services: str = field(default="10.96.0.0/16", metadata=read(network(12, 24)))
    reserve: int = field(default=512 * MIB, metadata=read(size(0, 64 * GIB)))
    least_cpus: int = field(default=2, metadata=read(count(1, 1024)))
    least_memory: int = field(default=3 * GIB, metadata=read(size(GIB, 1 << 40)))
    patience: float = field(default=1.0, metadata=read(factor(1, 20)))

    @property
    def images(self) -> tuple[str, ...]:
        """Every one that a job may have, the usual one first."""
        return tuple(dict.fromkeys(filter(None, (self.image, *self.further_images))))


@dataclass(frozen=True)
class Records:
    """What is kept of jobs that are over."""

    days: int = field(default=30, metadata=read(count(0, 3660)))


@dataclass(frozen=True)
class Metrics:
    """What the node tells Prometheus, where node_exporter's textfile collector looks for it."""

    directory: Path | None = field(default=None, metadata=read(absolute_path()))


@dataclass(frozen=True)
class Slurm:
    """Where this node's Slurm is."""

    bin: Path | None = field(default=None, metadata=read(absolute_path()))


@dataclass(frozen=True)
class Wait:
    """The longest waits, in seconds."""

    lock: float = field(default=30.0, metadata=read(seconds()))
    warden: float = field(default=30.0, metadata=read(seconds()))
    copy: float = field(default=300.0, metadata=read(seconds()))
    placeholder: float = field(default=60.0, metadata=read(seconds()))
    agents: float = field(default=120.0, metadata=read(seconds()))
    podman: float = field(default=120.0, metadata=read(seconds()))
    kill: float = field(default=30.0, metadata=read(seconds()))


@dataclass(frozen=True)
class Config:
    node_fault: NodeFault = field(default="fail", metadata=read(choice("fail", "drain")))
    policy: Policy = field(default_factory=Policy)
    scratch: Scratch = field(default_factory=Scratch)
    run: Run = field(default_factory=Run)
    store: Store = field(default_factory=Store)
    uplink: Uplink = field(default_factory=Uplink)
    fabric: Fabric = field(default_factory=Fabric)
    podman: Podman = field(default_factory=Podman)
    reserve: Reserve = field(default_factory=Reserve)
    kubernetes: Kubernetes = field(default_factory=Kubernetes)
    records: Records = field(default_factory=Records)
    metrics: Metrics = field(default_factory=Metrics)
    slurm: Slurm = field(default_factory=Slurm)
    wait: Wait = field(default_factory=Wait)
    pids_max: int = field(default=16384, metadata=read(count(256, 1 << 22)))
    cgroup_max_descendants: int = field(default=4096, metadata=read(count(64, 1 << 20)))
    cgroup_max_depth: int = field(default=32, metadata=read(count(8, 1024)))
    epilog_limit: float = field(default=60.0, metadata=read(seconds()))
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def prolog_limit(self, asking: float, copying: float) -> float:
        """How long a Prolog may take that asks for names and copies images for so long.

        There is what an earlier life of the job has left to be cleared, and what is half made when something fails.
        """
        return 2 * self.epilog_limit + asking + self.wait.lock + copying + self.wait.warden

    def source(self, name: str) -> str:
        """Where the value called `name`, such as scratch.size, comes from."""
        return self.sources.get(name, DEFAULT)

    def values(self) -> Iterator[tuple[str, Any]]:
        """Every setting by its full name."""
        for name in settings():
            value: Any = self
            for part in name.split("."):
                value = getattr(value, part)
            yield name, value


def settings(kind: type = Config, prefix: str = "") -> dict[str, Field[Any]]:
    """The declaration of every setting by its full name."""
    found: dict[str, Field[Any]] = {}
    for declared in fields(kind):
        if "read" in declared.metadata:
            found[prefix + declared.name] = declared
        elif section := section_of(declared):
            found |= settings(section, f"{prefix}{declared.name}.")
    return found


def section_of(declared: Field[Any]) -> type[Any] | None:
    made_by: Any = declared.default_factory
    return made_by if is_dataclass(made_by) and isinstance(made_by, type) else None
