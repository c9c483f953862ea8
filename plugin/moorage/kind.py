"""What kind is told of a job's cluster: everything in here is data made of data."""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from moorage import controlplane, early_services
from moorage.controlplane import AUTHENTICATION, FILES, SETTLED
from moorage.errors import UserError
from moorage.hardware import Bind, Hardware

# The first whose API server can keep strangers out of everything but its health.
OLDEST: Final = (1, 32)
# From then on kind (0.33) tells kubeadm all in its format v1beta4, and before in v1beta3.
BETA4: Final = (1, 36)
PATCHES: Final = "patches"
# Where the kubectl of the node, by which kind installs the pod network and the storage class, finds its preferences.
KUBERC: Final = "kuberc"
PREFERENCES: Final = "/root/.kube/kuberc"
# kind's own, for the image has all that it would fetch; and a restart of the kubelet in the middle of the start, for a
# certificate that is good for a year as it is.
SKIPPED: Final = ("preflight", "kubelet-finalize")
# Once a second, which nobody asked for, is a quarter of what an idle cluster costs (containerd 2.4).
CONTAINERD: Final = """\
[plugins."io.containerd.cri.v1.runtime"]
  stats_collect_period = "10s"
"""

Storage = Literal["memory", "disk"]
Version = tuple[int, ...]

_TAG: Final = re.compile(r":v(\d+\.\d+(?:\.\d+)?)[^:/@]*(?:@sha256:[0-9a-f]{64})?$")
_TOKEN: Final = string.ascii_lowercase + string.digits


@dataclass(frozen=True)
class Plan:
    """All that decides how a node of a cluster is made; `files` is where ours lie on the host."""

    job: int
    # By its full name, once it is known to be there.
    image: str
    version: Version
    token: str
    etcd: Storage
    patience: float
    reserved: Mapping[str, str]
    files: Path
    hardware: Hardware = field(default_factory=Hardware)
    # By which Kubernetes knows this node.
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # Of the cluster.
    nodes: int = 1
    pods: str = "10.244.0.0/16"
    services: str = "10.96.0.0/16"

    @property
    def lease(self) -> float:
        """Of what is renewed again and again; longer helps nobody, and delays what follows on its end."""
        return min(self.patience, 2.0)

    @property
    def election(self) -> float:
        """Of who may be the controller manager, or the scheduler.

        Who does not renew in time ends himself. His next life asks the API for everything once more, and the more nodes
        there are, the more that is: a first node which is overloaded comes to nothing else.
        """
        return self.lease if self.nodes == 1 else min(self.patience, 4.0)

    @property
    def beta4(self) -> bool:
        return self.version >= BETA4


def name(job: int) -> str:
    return f"moorage-{job}"


def node(job: int, place: int = 0) -> str:
    """The container that is the job's first node, or another one: by kind's rule, with a number of ours."""
    return f"{name(job)}-worker{place}" if place else f"{name(job)}-control-plane"


def version(image: str, wanted: str | None = None) -> Version:
    """The Kubernetes in the image, which its tag says; a UserError if that cannot do, or is not what was wanted."""
    found = _TAG.search(image)
    if not found:
        raise UserError(
            f"the tag of node image {image} names no version", "give it one: kubernetes.image: NAME:v1.36.3"
        )
    has = tuple(map(int, found[1].split(".")))
    if has < OLDEST:
        raise UserError(f"{image} is too old: its API cannot be closed to strangers", "take Kubernetes 1.32 or newer")
    if wanted and not _is(has, wanted):
        raise UserError(f"this node has Kubernetes {found[1]} and not {wanted}", f"ask for version={found[1]}")
    return has


def chosen(images: Sequence[str], wanted: str) -> str:
    """The first of the site's images that is this Kubernetes; a UserError that names those that there are."""
    offered = {image: version(image) for image in images}
    for image, has in offered.items():
        if _is(has, wanted):
            return image
    there = [".".join(map(str, has)) for has in offered.values()]
    what = f"this node has Kubernetes {' and '.join(there)} and not {wanted}"
    raise UserError(what, f"ask for {' or '.join(f'version={one}' for one in there)}")


def _is(has: Version, wanted: str) -> bool:
    """1.36.3 is a 1.36, too."""
    return has[: wanted.count(".") + 1] == tuple(map(int, wanted.split(".")))


def bootstrap_token() -> str:
    """Of this job alone: the one in kind's own configuration is the same everywhere, and known to all."""
    while True:
        token = ".".join("".join(secrets.choice(_TOKEN) for _ in range(length)) for length in (6, 16))
        # By it one is told from a name, in what is shown to others.
        if any(map(str.isdigit, token)):
            return token


def configuration(plan: Plan) -> dict[str, Any]:
    kuberc = {"hostPath": str(plan.files / KUBERC), "containerPath": PREFERENCES, "readOnly": True}
    node: dict[str, Any] = {"role": "control-plane", "image": plan.image, "labels": dict(plan.labels)}
    node["extraMounts"] = [*mounts(plan), *([kuberc] if plan.version >= SETTLED else [])]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": name(plan.job),
        "nodes": [node],
        "networking": {"podSubnet": plan.pods, "serviceSubnet": plan.services},
        "containerdConfigPatches": [CONTAINERD],
        # YAML holds JSON.
        "kubeadmConfigPatches": [json.dumps(patch) for patch in kubeadm(plan)],
    }


def mounts(plan: Plan) -> list[dict[str, Any]]:
    """Our files, and the hardware: kind knows of no devices, and pods find what is mounted by hostPath."""
    devices = [Bind(device, device, writable=True) for device in plan.hardware.devices]
    unit = Bind(str(plan.files / early_services.UNIT), early_services.UNIT_PLACE)
    return [
        {"hostPath": bind.source, "containerPath": bind.target, "readOnly": not bind.writable}
        for bind in (Bind(str(plan.files), FILES), unit, *devices, *plan.hardware.binds)
    ]


def files(plan: Plan) -> dict[str, dict[str, Any]]:
    """Ours that the node reads, by their paths below FILES."""
    patches = controlplane.pods(plan) | {"corednsdeployment": {"spec": _names(plan)}}
    return {AUTHENTICATION: controlplane.authentication(plan.version), KUBERC: preferences()} | {
        f"{PATCHES}/{target}+strategic.json": patch for target, patch in patches.items()
    }


def preferences() -> dict[str, Any]:
    """What kind installs is known to be valid: to have it compared with the API's whole description takes seconds."""
    unchecked = [{"name": "validate", "default": "false"}]
    defaults = [{"command": command, "options": unchecked} for command in ("create", "apply")]
    return {"apiVersion": "kubectl.config.k8s.io/v1beta1", "kind": "Preference", "defaults": defaults}


def kubeadm(plan: Plan) -> list[dict[str, Any]]:
    """Patches of what kind writes for kubeadm and kubelet."""
    keys = {"encryptionAlgorithm": "ECDSA-P256"} if plan.beta4 else {"featureGates": {"PublicKeysECDSA": True}}
    waits = {"timeouts": controlplane.timeouts(plan.patience)} if plan.beta4 else {}
    return [
        {"kind": "ClusterConfiguration", **keys, **controlplane.parts(plan)},
        {"kind": "InitConfiguration", "bootstrapTokens": [{"token": plan.token}]}
        | {"nodeRegistration": {"name": plan.name}, "patches": {"directory": f"{FILES}/{PATCHES}"}}
        | {"skipPhases": list(SKIPPED), **waits},
        {"kind": "JoinConfiguration", "discovery": {"bootstrapToken": {"token": plan.token}}},
        {"kind": "KubeletConfiguration", "systemReserved": dict(plan.reserved)}
        | {
            # As often a node is told of, and for as long it may take; that it is ready it says at once in any case.
            "nodeStatusUpdateFrequency": controlplane.seconds(10 * plan.lease),
            "nodeLeaseDurationSeconds": round(40 * plan.lease),
            "runtimeRequestTimeout": controlplane.seconds(120 * plan.patience),
        },
    ]


def _names(plan: Plan) -> dict[str, Any]:
    """CoreDNS is asked at once whether it is ready, not ten seconds after it first was not.

    A second one would be lost with the only node. The one must then be there to be called available, which kubeadm's
    own strategy, with one that may be missing, would not ask for.
    """
    probe = {"periodSeconds": round(plan.lease), "timeoutSeconds": round(plan.patience)}
    pod = {"template": {"spec": {"containers": [{"name": "coredns", "readinessProbe": probe}]}}}
    if plan.nodes > 1:
        return pod
    return pod | {"replicas": 1, "strategy": {"rollingUpdate": {"maxUnavailable": 0}}}
