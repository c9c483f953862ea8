"""The configuration: its keys, their defaults, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
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
# In the metadata of a field.
READER: Final = "reader"
SECTION: Final = "section"

ScratchKind = Literal["loop", "tmpfs", "project", "directory"]
NodeFault = Literal["fail", "drain"]
EtcdStorage = Literal["memory", "disk"]
ViewKind = Literal["auto", "idmap", "copy"]
Preference = Literal["measure", "order"]


Kind = TypeVar("Kind")


def key(reader: Reader, default: object) -> Any:  # noqa: ANN401
    """A field that is a key of the file: how its value is read, and what it is unless given."""
    return field(default=default, metadata={READER: reader})


def section(kind: type[Any]) -> Any:  # noqa: ANN401
    """A field that is a section of the file, with the keys of this dataclass."""
    return field(default_factory=kind, metadata={SECTION: kind})


@dataclass(frozen=True)
class Policy:
    """Who may use --k8s. An empty list keeps nobody out."""

    users: tuple[str, ...] = key(names(), ())
    groups: tuple[str, ...] = key(names(), ())
    accounts: tuple[str, ...] = key(names(), ())
    partitions: tuple[str, ...] = key(names(), ())
    qos: tuple[str, ...] = key(names(), ())
    most_nodes: int | None = key(count(1, 1 << 16), None)
    contact: str = key(phrase(), "the administrator")


@dataclass(frozen=True)
class Scratch:
    """The space that each job has for itself on the node's disk."""

    path: Path = key(absolute_path(), Path("/var/lib/moorage/scratch"))
    kind: ScratchKind = key(choice("loop", "tmpfs", "project", "directory"), "loop")
    size: int = key(size(64 * MIB, 100 << 40), 20 * GIB)


@dataclass(frozen=True)
class Run:
    """The tmpfs of a job's run directory."""

    size: int = key(size(4 * MIB, 16 * GIB), 64 * MIB)
    inodes: int = key(count(1024, 1 << 24), 16384)


@dataclass(frozen=True)
class Store:
    """The node's images, and how jobs see them."""

    path: Path = key(absolute_path(), Path("/var/lib/moorage/store"))
    view: ViewKind = key(choice("auto", "idmap", "copy"), "auto")
    keep_free: int = key(size(64 * MIB, 100 << 40), 2 * GIB)


@dataclass(frozen=True)
class Uplink:
    """How containers reach the outside."""

    allowed: tuple[str, ...] = key(choices(*UPLINKS), ("pasta", "slirp4netns"))
    by: Preference = key(choice("measure", "order"), "measure")
    order: tuple[str, ...] = key(choices(*UPLINKS), ("kernel", "pasta", "slirp4netns"))
    # The rest is for the uplink `kernel`. Without resolvers it takes the node's, as far as they are on other hosts.
    resolvers: tuple[str, ...] = key(addresses(), ())
    pool: str = key(network(8, 24), "100.96.0.0/16")
    refused: tuple[str, ...] = key(networks(), ())
    connections: int = key(count(16, 2048), 1024)


@dataclass(frozen=True)
class Fabric:
    """How the nodes of a job reach each other; the same on all nodes."""

    # By default the interface by which the other nodes are reached.
    interface: str | None = key(interface(), None)
    # How the name of a node becomes its name on that interface; or a file like /etc/hosts that says so.
    host: str = key(host_rule(), "{host}")
    hosts: Path | None = key(absolute_path(), None)
    subnet: str = key(subnet(), "10.89.0.0/16")
    port: int = key(count(1, 65535), 339)
    source_ports: str = key(ports(), "600-1023")
    flood: int = key(count(10, 1 << 20), 2000)


@dataclass(frozen=True)
class Podman:
    """The networks of each job's Podman."""

    pool: str = key(network(8, 20), "10.88.0.0/16")


@dataclass(frozen=True)
class Reserve:
    """The part of a job's memory that containers may not take."""

    memory: int = key(size(16 * MIB, 64 * GIB), 128 * MIB)


@dataclass(frozen=True)
class Kubernetes:
    """The images of clusters, and what a cluster needs of a job."""

    image: str | None = key(image(), None)
    further_images: tuple[str, ...] = key(images(), ())
    archive: Path | None = key(absolute_path(), None)
    kind: Path | None = key(absolute_path(), None)
    etcd: EtcdStorage = key(choice("memory", "disk"), "memory")
    # Each node has 256 of these addresses.
    pods: str = key(network(8, 16), "10.244.0.0/16")
    services: str = key(network(12, 24), "10.96.0.0/16")
    reserve: int = key(size(0, 64 * GIB), 512 * MIB)
    least_cpus: int = key(count(1, 1024), 2)
    least_memory: int = key(size(GIB, 1 << 40), 3 * GIB)
    patience: float = key(factor(1, 20), 1.0)

    @property
    def images(self) -> tuple[str, ...]:
        """All images that a job may choose, the default first."""
        return tuple(dict.fromkeys(filter(None, (self.image, *self.further_images))))


@dataclass(frozen=True)
class Records:
    """The records of jobs that are over."""

    days: int = key(count(0, 3660), 30)


@dataclass(frozen=True)
class Metrics:
    """The file for Prometheus, where node_exporter's textfile collector looks for it."""

    directory: Path | None = key(absolute_path(), None)


@dataclass(frozen=True)
class Slurm:
    """Where this node's Slurm is."""

    bin: Path | None = key(absolute_path(), None)


@dataclass(frozen=True)
class Wait:
    """Timeouts, in seconds."""

    lock: float = key(seconds(), 30.0)
    warden: float = key(seconds(), 30.0)
    copy: float = key(seconds(), 300.0)
    placeholder: float = key(seconds(), 60.0)
    agents: float = key(seconds(), 120.0)
    podman: float = key(seconds(), 120.0)
    kill: float = key(seconds(), 30.0)


@dataclass(frozen=True)
class Config:
    node_fault: NodeFault = key(choice("fail", "drain"), "fail")
    policy: Policy = section(Policy)
    scratch: Scratch = section(Scratch)
    run: Run = section(Run)
    store: Store = section(Store)
    uplink: Uplink = section(Uplink)
    fabric: Fabric = section(Fabric)
    podman: Podman = section(Podman)
    reserve: Reserve = section(Reserve)
    kubernetes: Kubernetes = section(Kubernetes)
    records: Records = section(Records)
    metrics: Metrics = section(Metrics)
    slurm: Slurm = section(Slurm)
    wait: Wait = section(Wait)
    pids_max: int = key(count(256, 1 << 22), 16384)
    cgroup_max_descendants: int = key(count(64, 1 << 20), 4096)
    cgroup_max_depth: int = key(count(8, 1024), 32)
    epilog_limit: float = key(seconds(), 60.0)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def prolog_limit(self, asking: float, copying: float) -> float:
        """How long a Prolog may take, if it asks for names and copies images for so long.

        It may clean up twice: what an earlier run of the job has left, and its own work when something fails.
        """
        return 2 * self.epilog_limit + asking + self.wait.lock + copying + self.wait.warden

    def source(self, name: str) -> str:
        """Where the value called `name`, such as scratch.size, comes from."""
        return self.sources.get(name, DEFAULT)

    def values(self) -> Iterator[tuple[str, Any]]:
        """Every value by the full name of its key."""
        for name in known_keys():
            value: Any = self
            for part in name.split("."):
                value = getattr(value, part)
            yield name, value


def known_keys(kind: type = Config, prefix: str = "") -> dict[str, Reader]:
    """How each value is read, by the full name of its key."""
    found: dict[str, Reader] = {}
    for declared in fields(kind):
        if READER in declared.metadata:
            found[prefix + declared.name] = declared.metadata[READER]
        elif SECTION in declared.metadata:
            found |= known_keys(declared.metadata[SECTION], f"{prefix}{declared.name}.")
    return found


def made(kind: type[Kind], values: Mapping[str, object], prefix: str = "", /, **more: object) -> Kind:
    """An instance of `kind` with these values, by the full names of their keys, and its defaults for the others."""
    given = dict(more)
    for declared in fields(kind):  # type: ignore[arg-type]
        name = prefix + declared.name
        if SECTION in declared.metadata:
            given[declared.name] = made(declared.metadata[SECTION], values, f"{name}.")
        elif name in values:
            given[declared.name] = values[name]
    return kind(**given)
