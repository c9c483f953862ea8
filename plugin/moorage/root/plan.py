"""What a job gets on this node, decided before anything is made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from moorage.common.description import Segment, WayOut
from moorage.common.errors import MoorageError
from moorage.common.job import Job
from moorage.common.participants import Participants
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

# Those that the job itself has to keep.
WAITS: Final = ("agents", "podman", "kill")
# Of these each job has one at most.
IMAGES: Final = ("image", "further_images")
REGISTRIES: Final = "/etc/containers/registries.conf"


@dataclass(frozen=True)
class Plan:
    """All that was found out and decided before anything is made."""

    job: Job
    spec: Spec
    config: Config
    around: Surroundings
    uplink: uplink.Choice
    granted: Mapping[str, list[idmap.Range]]
    # That of its cluster, where it has one and the site has settled on any.
    image: str | None = None
    outfit: Outfit = field(default_factory=Outfit)
    fleet: Participants = field(default_factory=lambda: Participants(()))
    fabric: Fabric | None = None
    gateway: Gateway | None = None

    @property
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

    @property
    def description(self) -> dict[str, Any]:
        """What the job may know."""
        return {
            "job": self.job.id,
            "restart": self.job.restart,
            "node": self.job.node,
            "spec": self.spec.as_dict(),
            "uplink": self.uplink.driver,
            "uplink_reason": self.uplink.reason,
            "podman": str(self.tools.podman),
            "runtime": str(self.tools.runtime),
            "srun": str(self.around.srun or ""),
            "versions": self.around.versions,
            "subuids": [[one.start, one.count] for one in self.granted["uid"]],
            "subgids": [[one.start, one.count] for one in self.granted["gid"]],
            "hardware": self.outfit.hardware.as_dict(),
            "nodes": len(self.fleet.nodes),
            "place": self.fleet.place,
            "fabric": self._segment(self.fabric) if self.fabric else None,
            "gateway": self._way_out(self.gateway) if self.gateway else None,
            "kubernetes": {**self._kubernetes(), "image": self.image},
            "wait": self._waits(),
        }

    def _waits(self) -> dict[str, float]:
        waits = {name: getattr(self.config.wait, name) for name in WAITS}
        if self.fabric:
            from moorage.root.net import peers

            # Slurm begins with a job's script once the first of its nodes is prepared: the others may still be at it.
            copying = 0 if self.config.store.view == "idmap" else self.config.wait.copy
            waits["others"] = self.config.prolog_limit(peers.WAIT, copying)
        return waits

    def _segment(self, fabric: Fabric) -> dict[str, Any]:
        own = fabric.hardware_address(fabric.place)
        return asdict(Segment(self.config.fabric.subnet, fabric.mtu, own, self.fleet.nodes))

    def _way_out(self, gateway: Gateway) -> dict[str, Any]:
        return asdict(WayOut(str(gateway.inner), str(gateway.outer.ip), gateway.mtu))

    def _kubernetes(self) -> dict[str, Any]:
        settled = vars(self.config.kubernetes).items()
        return {name: _plain(value) for name, value in settled if name not in IMAGES}


def _plain(value: object) -> object:
    """As JSON can hold it."""
    return str(value) if isinstance(value, os.PathLike) else value
