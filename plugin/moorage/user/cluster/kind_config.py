"""What kind is told of a job's cluster: everything in here is data made of data."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from moorage.common.hardware import Bind, Hardware
from moorage.common.node_image import Version
from moorage.user.cluster import control_plane
from moorage.user.cluster.control_plane import AUTHENTICATION, FILES, SETTLED

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
    return [
        {"hostPath": bind.source, "containerPath": bind.target, "readOnly": not bind.writable}
        for bind in (Bind(str(plan.files), FILES), *devices, *plan.hardware.binds)
    ]


def files(plan: Plan) -> dict[str, dict[str, Any]]:
    """Ours that the node reads, by their paths below FILES."""
    patches = control_plane.pods(plan) | {"corednsdeployment": {"spec": _names(plan)}}
    return {AUTHENTICATION: control_plane.authentication(plan.version), KUBERC: preferences()} | {
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
    waits = {"timeouts": control_plane.timeouts(plan.patience)} if plan.beta4 else {}
    return [
        {"kind": "ClusterConfiguration", **keys, **control_plane.parts(plan)},
        {"kind": "InitConfiguration", "bootstrapTokens": [{"token": plan.token}]}
        | {"nodeRegistration": {"name": plan.name}, "patches": {"directory": f"{FILES}/{PATCHES}"}}
        | {"skipPhases": list(SKIPPED), **waits},
        {"kind": "JoinConfiguration", "discovery": {"bootstrapToken": {"token": plan.token}}},
        {"kind": "KubeletConfiguration", "systemReserved": dict(plan.reserved)}
        | {
            # As often a node is told of, and for as long it may take; that it is ready it says at once in any case.
            "nodeStatusUpdateFrequency": control_plane.seconds(10 * plan.lease),
            "nodeLeaseDurationSeconds": round(40 * plan.lease),
            "runtimeRequestTimeout": control_plane.seconds(120 * plan.patience),
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
