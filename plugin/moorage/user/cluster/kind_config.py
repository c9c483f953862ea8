"""The configuration of a job's cluster, for kind and kubeadm. All functions are pure."""

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
from moorage.user.cluster import control_plane, early_services
from moorage.user.cluster.control_plane import AUTHENTICATION, FILES, SETTLED

# From this version on, kind (0.33) writes kubeadm's format v1beta4, before that v1beta3.
BETA4: Final = (1, 36)
PATCHES: Final = "patches"
# The preferences of the node's kubectl, with which kind installs the pod network and the storage class.
KUBERC: Final = "kuberc"
PREFERENCES: Final = "/root/.kube/kuberc"
# kind skips the first itself: the image has all that kubeadm would fetch. The second would restart the kubelet in the
# middle of the start, for a certificate that is valid for a year.
SKIPPED: Final = ("preflight", "kubelet-finalize")
# The default, once a second, is a quarter of the work of an idle cluster (containerd 2.4).
CONTAINERD: Final = """\
[plugins."io.containerd.cri.v1.runtime"]
  stats_collect_period = "10s"
"""

Storage = Literal["memory", "disk"]
_TOKEN: Final = string.ascii_lowercase + string.digits


@dataclass(frozen=True)
class Plan:
    """All decisions about a node of a cluster; `files` is the directory of our files on the host."""

    job: int
    # The full name, once the image is known to be on the node.
    image: str
    version: Version
    token: str
    etcd: Storage
    patience: float
    reserved: Mapping[str, str]
    files: Path
    hardware: Hardware = field(default_factory=Hardware)
    # The name by which Kubernetes knows this node.
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # These three are of the cluster.
    nodes: int = 1
    pods: str = "10.244.0.0/16"
    services: str = "10.96.0.0/16"

    @property
    def lease(self) -> float:
        """The slowness for leases: a longer lease is of no use, and delays what follows when it ends."""
        return min(self.patience, 2.0)

    @property
    def election(self) -> float:
        """The slowness for the leases of the controller manager and the scheduler.

        A program that does not renew its lease in time ends. After its restart it reads all objects from the API again,
        more of them the more nodes there are. An overloaded first node would do nothing else.
        """
        return self.lease if self.nodes == 1 else min(self.patience, 4.0)

    @property
    def beta4(self) -> bool:
        return self.version >= BETA4


def name(job: int) -> str:
    return f"moorage-{job}"


def node(job: int, place: int = 0) -> str:
    """The name of the node container, by kind's rule; the number of a worker is the node's index in the job."""
    return f"{name(job)}-worker{place}" if place else f"{name(job)}-control-plane"


def bootstrap_token() -> str:
    """A token for this job alone: the one that kind uses by default is the same everywhere."""
    while True:
        token = ".".join("".join(secrets.choice(_TOKEN) for _ in range(length)) for length in (6, 16))
        # The digit distinguishes a token from a name, where secrets are removed from logs.
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
        # JSON is YAML.
        "kubeadmConfigPatches": [json.dumps(patch) for patch in kubeadm(plan)],
    }


def mounts(plan: Plan) -> list[dict[str, Any]]:
    """Our files and the hardware: kind has no option for devices, and pods reach what is mounted here by hostPath."""
    devices = [Bind(device, device, writable=True) for device in plan.hardware.devices]
    unit = Bind(str(plan.files / early_services.UNIT), early_services.UNIT_PLACE)
    return [
        {"hostPath": bind.source, "containerPath": bind.target, "readOnly": not bind.writable}
        for bind in (Bind(str(plan.files), FILES), unit, *devices, *plan.hardware.binds)
    ]


def files(plan: Plan) -> dict[str, dict[str, Any]]:
    """Our files that the node reads, by their paths below FILES."""
    patches = control_plane.pods(plan) | {"corednsdeployment": {"spec": _names(plan)}}
    return {AUTHENTICATION: control_plane.authentication(plan.version), KUBERC: preferences()} | {
        f"{PATCHES}/{target}+strategic.json": patch for target, patch in patches.items()
    }


def preferences() -> dict[str, Any]:
    """kubectl's preferences: no validation, which takes seconds; what kind installs is known to be valid."""
    unchecked = [{"name": "validate", "default": "false"}]
    defaults = [{"command": command, "options": unchecked} for command in ("create", "apply")]
    return {"apiVersion": "kubectl.config.k8s.io/v1beta1", "kind": "Preference", "defaults": defaults}


def kubeadm(plan: Plan) -> list[dict[str, Any]]:
    """Patches for the configuration that kind writes for kubeadm and kubelet."""
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
            # How often a node's status is reported, and the timeout of a report. That it is ready is reported at once.
            "nodeStatusUpdateFrequency": control_plane.seconds(10 * plan.lease),
            "nodeLeaseDurationSeconds": round(40 * plan.lease),
            "runtimeRequestTimeout": control_plane.seconds(120 * plan.patience),
        },
    ]


def _names(plan: Plan) -> dict[str, Any]:
    """A patch for CoreDNS: its readiness is looked at often, not ten seconds after the first look.

    On one node there is one replica, because a second one would be lost together with the first. kubeadm's strategy
    calls a deployment available with one replica missing, so the patch changes that, too.
    """
    probe = {"periodSeconds": round(plan.lease), "timeoutSeconds": round(plan.patience)}
    pod = {"template": {"spec": {"containers": [{"name": "coredns", "readinessProbe": probe}]}}}
    if plan.nodes > 1:
        return pod
    return pod | {"replicas": 1, "strategy": {"rollingUpdate": {"maxUnavailable": 0}}}
