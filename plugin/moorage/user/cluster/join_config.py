"""The configuration of a node that joins a cluster, for Podman and for kubeadm. All functions are pure.

The node is the same as kind (0.33) would make it, if it were on the same host as the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage.common.description import Segment
from moorage.user.cluster import control_plane, kind_config
from moorage.user.cluster.control_plane import FILES
from moorage.user.cluster.kind_config import PATCHES, Plan
from moorage.user.network import bridge

# These two are in the memory of the node, because the token is in one of them for a moment.
CONFIGURATION: Final = "run/moorage-join.json"
DISCOVERY: Final = "run/moorage-discovery.json"
CONTAINERD: Final = "etc/containerd/config.toml"
KUBELET: Final = "kubeletconfiguration+merge.json"
# Names inside the cluster, which no proxy can reach.
INSIDE: Final = (".svc", ".svc.cluster", ".svc.cluster.local")
# kubelet needs to see the devices below these file systems.
MAPPED: Final = ("btrfs", "xfs", "zfs")
MAPPER: Final = "/dev/mapper"


def container(
    plan: Plan, segment: Segment, place: int, volume: str, environ: Mapping[str, str], file_system: str = ""
) -> list[str]:
    """Podman's arguments. `volume` is a new volume, and `file_system` is the one that images lie on."""
    name, first = kind_config.node(plan.job, place), kind_config.node(plan.job)
    mapper = [f"--volume={MAPPER}:{MAPPER}"] if file_system in MAPPED else []
    return [
        *("run", "--name", name, "--hostname", name, "--pull=never"),
        *("--label", "io.x-k8s.kind.role=worker", "--label", f"io.x-k8s.kind.cluster={kind_config.name(plan.job)}"),
        *("--privileged", "--tmpfs", "/tmp", "--tmpfs", "/run", "--volume", f"{volume}:/var:suid,exec,dev"),  # noqa: S108
        *("--volume", "/lib/modules:/lib/modules:ro", "-e", "KIND_EXPERIMENTAL_CONTAINERD_SNAPSHOTTER"),
        *("--detach", "--tty", "--net", bridge.NAME, *bridge.membership(segment, place)),
        # kube-proxy and pod networks know the API by this name, and no name server has it here.
        f"--add-host={first}:{bridge.address(segment, 0)}",
        *("-e", "container=podman", "--cgroupns=private", "--device", "/dev/fuse", *mapper),
        *(word for name, value in proxies(environ, plan, segment).items() for word in ("-e", f"{name}={value}")),
        *(f"--volume={_volume(mount)}" for mount in kind_config.mounts(plan)),
        plan.image,
    ]


def proxies(environ: Mapping[str, str], plan: Plan, segment: Segment) -> dict[str, str]:
    """The user's proxy variables in upper and lower case, with everything inside the cluster as an exception."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    found = {name: environ.get(name) or environ.get(name.lower()) or "" for name in names}
    if not any(found.values()):
        return {}
    inside = (segment.subnet, kind_config.node(plan.job), plan.services, plan.pods, *INSIDE)
    found["NO_PROXY"] = ",".join(filter(None, (found["NO_PROXY"], *inside)))
    return {way: value for name, value in found.items() if value for way in (name, name.lower())}


def files(plan: Plan) -> dict[str, dict[str, Any]]:
    """Our files that the node reads, by their paths below FILES: what differs from the other nodes."""
    return {f"{PATCHES}/{KUBELET}": {"systemReserved": dict(plan.reserved)}}


def configuration(plan: Plan, segment: Segment, place: int) -> dict[str, Any]:
    provider = f"kind://podman/{kind_config.name(plan.job)}/{kind_config.node(plan.job, place)}"
    labels = ",".join(f"{name}={value}" for name, value in plan.labels.items())
    arguments = {"node-ip": bridge.address(segment, place), "provider-id": provider, "node-labels": labels}
    return {
        # Every kubeadm since 1.31 reads this format, whatever kind uses.
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "nodeRegistration": {
            "name": plan.name,
            "criSocket": "unix:///run/containerd/containerd.sock",
            "kubeletExtraArgs": control_plane.arguments(arguments),
        },
        # The API tells nothing about the cluster to anonymous callers, so kubeadm cannot find the certificate authority
        # by the token alone. It finds both in this file.
        "discovery": {"file": {"kubeConfigPath": f"/{DISCOVERY}"}},
        "patches": {"directory": f"{FILES}/{PATCHES}"},
        "timeouts": control_plane.timeouts(plan.patience),
        "skipPhases": ["preflight"],
    }


def containerd(text: str) -> str:
    """The text of containerd's configuration with our settings, which kind adds on the first node."""
    header, _, settings = kind_config.CONTAINERD.partition("\n")
    if f"\n{header}\n" in f"\n{text}":
        return text.replace(f"{header}\n", f"{header}\n{settings}", 1)
    return f"{text.rstrip()}\n\n{kind_config.CONTAINERD}"


def _volume(mount: Mapping[str, Any]) -> str:
    return f"{mount['hostPath']}:{mount['containerPath']}{':ro' if mount['readOnly'] else ''}"
