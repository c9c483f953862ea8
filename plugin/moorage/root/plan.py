"""The plan: what a job gets on this node, decided before anything is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moorage.common.description import Kubernetes, Mooring, Segment, Waits, WayOut
from moorage.common.errors import MoorageError
from moorage.common.job import Job
from moorage.common.participants import Fleet
from moorage.common.podman import Places
from moorage.common.spec import Spec
from moorage.linux import idmap
from moorage.node import programs, routes, uplink
from moorage.node.checks import Surroundings
from moorage.node.config.schema import Config
from moorage.node.features import Outfit
from moorage.node.hostfiles import Node
from moorage.root import podman_conf

if TYPE_CHECKING:
    from moorage.root.net.fabric import Fabric
    from moorage.root.net.gateway import Gateway

REGISTRIES: Final = "/etc/containers/registries.conf"


@dataclass(frozen=True)
class Plan:
    """Everything that is known and decided before anything is made."""

    job: Job
    spec: Spec
    config: Config
    around: Surroundings
    uplink: uplink.Choice
    granted: Mapping[str, list[idmap.Range]]
    # The image of its cluster's nodes, if the job has a cluster and the configuration names an image.
    image: str | None = None
    outfit: Outfit = field(default_factory=Outfit)
    fleet: Fleet = field(default_factory=lambda: Fleet(()))
    fabric: Fabric | None = None
    gateway: Gateway | None = None

    @cached_property
    def tools(self) -> podman_conf.Tools:
        runtime = programs.runtime(self.around.programs)
        if runtime is None:
            raise MoorageError("there is no container runtime, though the checks found no fault")
        return podman_conf.Tools(
            podman=self.around.programs["podman"].path,
            runtime=runtime.path,
            driver=self.uplink.driver,
            registries=Node().text(REGISTRIES) or None,
            resolvers=uplink.resolvers(Node(), self.config.uplink) if self.uplink.driver == uplink.KERNEL else (),
            pasta=pasta.path if (pasta := self.around.programs.get("pasta")) else None,
            between=uplink.between(Node(), self.config.uplink) if self.uplink.driver == "slirp4netns" else None,
            networks=routes.choose_subnets(Node(), self.config.podman.pool),
        )

    @cached_property
    def description(self) -> Mooring:
        """All that the job may know."""
        tools = self.tools
        return Mooring(
            job=self.job.id,
            restart=self.job.restart,
            node=self.job.node,
            spec=self.spec,
            podman=tools.podman,
            uplink=self.uplink.driver,
            srun=self.around.srun,
            waits=self._waits(),
            kubernetes=self._kubernetes(),
            places=Places(self.job.run),
            hardware=self.outfit.hardware,
            nodes=len(self.fleet.nodes),
            place=self.fleet.place or 0,
            fabric=self._segment(self.fabric) if self.fabric else None,
            gateway=self._way_out(self.gateway) if self.gateway else None,
            uplink_reason=self.uplink.reason,
            runtime=str(tools.runtime),
            versions=self.around.versions,
            subuids=_pairs(self.granted["uid"]),
            subgids=_pairs(self.granted["gid"]),
        )

    def _waits(self) -> Waits:
        wait = self.config.wait
        return Waits(wait.agents, wait.podman, wait.kill, self._others_wait())

    def _others_wait(self) -> float:
        """How much later than the first node of the job the others may be prepared."""
        if not self.fabric:
            return 0.0
        from moorage.root.net import peers

        # Slurm starts a job's script once the first of its nodes is prepared.
        copying = 0 if self.config.store.view == "idmap" else self.config.wait.copy
        return self.config.prolog_limit(peers.WAIT, copying)

    def _segment(self, fabric: Fabric) -> Segment:
        own = fabric.hardware_address(fabric.place)
        return Segment(self.config.fabric.subnet, fabric.mtu, own, self.fleet.nodes)

    def _way_out(self, gateway: Gateway) -> WayOut:
        return WayOut(str(gateway.inner), str(gateway.outer.ip), gateway.mtu)

    def _kubernetes(self) -> Kubernetes:
        site = self.config.kubernetes
        return Kubernetes(
            image=self.image,
            archive=_text(site.archive),
            kind=_text(site.kind),
            etcd=site.etcd,
            pods=site.pods,
            services=site.services,
            reserve=site.reserve,
            least_cpus=site.least_cpus,
            least_memory=site.least_memory,
            patience=site.patience,
        )


def _pairs(ranges: Iterable[idmap.Range]) -> tuple[tuple[int, int], ...]:
    return tuple((one.start, one.count) for one in ranges)


def _text(path: Path | None) -> str | None:
    return str(path) if path else None
