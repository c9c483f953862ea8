"""What is told of a node that joins a cluster, to Podman and to kubeadm: everything in here is data made of data.

The node is what kind (0.33) would make of it if it stood on the same host as the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage.common.description import Segment
from moorage.user.cluster import control_plane, kind_config
from moorage.user.cluster.control_plane import FILES
from moorage.user.cluster.kind_config import PATCHES, Plan
from moorage.user.network import bridge

# In the node's memory, where the token may lie for a moment.
CONFIGURATION: Final = "run/moorage-join.json"
DISCOVERY: Final = "run/moorage-discovery.json"
CONTAINERD: Final = "etc/containerd/config.toml"
KUBELET: Final = "kubeletconfiguration+merge.json"
# What a way to the outside by a proxy must not be used for.
INSIDE: Final = (".svc", ".svc.cluster", ".svc.cluster.local")
# Which devices these are on kubelet wants to know.
MAPPED: Final = ("btrfs", "xfs", "zfs")
MAPPER: Final = "/dev/mapper"


def container(
    plan: Plan, segment: Segment, place: int, volume: str, environ: Mapping[str, str], file_system: str = ""
) -> list[str]:
    """Podman's words; `volume` is a new one, and images lie on that file system."""
    name, first = kind_config.node(plan.job, place), kind_config.node(plan.job)
    mapper = [f"--volume={MAPPER}:{MAPPER}"] if file_system in MAPPED else []
    return [
        *("run", "--name", name, "--hostname", name, "--pull=never"),
        *("--label", "io.x-k8s.kind.role=worker", "--label", f"io.x-k8s.kind.cluster={kind_config.name(plan.job)}"),
        *("--privileged", "--tmpfs", "/tmp", "--tmpfs", "/run", "--volume", f"{volume}:/var:suid,exec,dev"),  # noqa: S108
        *("--volume", "/lib/modules:/lib/modules:ro", "-e", "KIND_EXPERIMENTAL_CONTAINERD_SNAPSHOTTER"),
        *("--detach", "--tty", "--net", bridge.NAME, *bridge.membership(segment, place)),
        # No name server knows it here, and kube-proxy and pod networks are told of the API by it.
        f"--add-host={first}:{bridge.address(segment, 0)}",
        *("-e", "container=podman", "--cgroupns=private", "--device", "/dev/fuse", *mapper),
        *(word for name, value in proxies(environ, plan, segment).items() for word in ("-e", f"{name}={value}")),
        *(f"--volume={_volume(mount)}" for mount in kind_config.mounts(plan)),
        plan.image,
    ]


def proxies(environ: Mapping[str, str], plan: Plan, segment: Segment) -> dict[str, str]:
    """The user's, in both ways of writing, for what is not inside; none if he has none."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    found = {name: environ.get(name) or environ.get(name.lower()) or "" for name in names}
    if not any(found.values()):
        return {}
    inside = (segment.subnet, kind_config.node(plan.job), plan.services, plan.pods, *INSIDE)
    found["NO_PROXY"] = ",".join(filter(None, (found["NO_PROXY"], *inside)))
    return {way: value for name, value in found.items() if value for way in (name, name.lower())}


def files(plan: Plan) -> dict[str, dict[str, Any]]:
    """Ours that the node reads, by their paths below FILES: of what all nodes share, what is this one's own."""
    return {f"{PATCHES}/{KUBELET}": {"systemReserved": dict(plan.reserved)}}


def configuration(plan: Plan, segment: Segment, place: int) -> dict[str, Any]:
    provider = f"kind://podman/{kind_config.name(plan.job)}/{kind_config.node(plan.job, place)}"
    labels = ",".join(f"{name}={value}" for name, value in plan.labels.items())
    arguments = {"node-ip": bridge.address(segment, place), "provider-id": provider, "node-labels": labels}
    return {
        # Every kubeadm since 1.31 reads it, whatever format kind uses.
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "nodeRegistration": {
            "name": plan.name,
            "criSocket": "unix:///run/containerd/containerd.sock",
            "kubeletExtraArgs": control_plane.arguments(arguments),
        },
        # Strangers are told nothing of the cluster, so kubeadm cannot look for it by the token alone: it is told whom
        # to believe, and finds the token beside that.
        "discovery": {"file": {"kubeConfigPath": f"/{DISCOVERY}"}},
        "patches": {"directory": f"{FILES}/{PATCHES}"},
        "timeouts": control_plane.timeouts(plan.patience),
        "skipPhases": ["preflight"],
    }


def containerd(text: str) -> str:
    """Its configuration with ours, which kind adds on the first node."""
    header, _, settings = kind_config.CONTAINERD.partition("\n")
    if f"\n{header}\n" in f"\n{text}":
        return text.replace(f"{header}\n", f"{header}\n{settings}", 1)
    return f"{text.rstrip()}\n\n{kind_config.CONTAINERD}"


def _volume(mount: Mapping[str, Any]) -> str:
    return f"{mount['hostPath']}:{mount['containerPath']}{':ro' if mount['readOnly'] else ''}"
