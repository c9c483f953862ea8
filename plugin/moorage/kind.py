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

from moorage.errors import UserError
from moorage.hardware import Bind, Hardware

# The first whose API server can keep strangers out of everything but its health.
OLDEST: Final = (1, 32)
# From then on the format that says so is no beta any more, and kubectl heeds preferences.
SETTLED: Final = (1, 34)
# From then on kind (0.33) tells kubeadm all in its format v1beta4, and before in v1beta3.
BETA4: Final = (1, 36)
# What the kubelet asks without a certificate, and kubeadm in its waits.
HEALTH: Final = ("/livez", "/readyz", "/healthz")
# Where the node finds our files.
FILES: Final = "/kind/moorage"
AUTHENTICATION: Final = "authentication.json"
PATCHES: Final = "patches"
# Where the kubectl of the node, by which kind installs the pod network and the storage class, finds its preferences.
KUBERC: Final = "kuberc"
PREFERENCES: Final = "/root/.kube/kuberc"
# A tmpfs in every node of kind's, and where etcd has its data else.
ETCD_IN_MEMORY: Final = "/run/etcd"
ETCD_ON_DISK: Final = "/var/lib/etcd"
# From then on etcd (3.6) can be reached by a socket. That is for root of the node alone, as the keys are by which one
# would reach its port; and the API server, which makes more than a hundred connections when it starts, saves the
# handshake of each.
BY_SOCKET: Final = (1, 34)
# Twice as much garbage as Go would leave: with little memory in use, collecting it is a tenth of what the two cost.
GARBAGE: Final = {"name": "GOGC", "value": "200"}

# Of a CPU, to which the weights of their cgroups are made: all wait for the first two, which shall come up first. It
# also leaves pods more to ask for than kubeadm's own 650m would.
WEIGHTS: Final = {
    "etcd": "200m",
    "kube-apiserver": "250m",
    "kube-controller-manager": "100m",
    "kube-scheduler": "25m",
}
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
    return [
        {"hostPath": bind.source, "containerPath": bind.target, "readOnly": not bind.writable}
        for bind in (Bind(str(plan.files), FILES), *devices, *plan.hardware.binds)
    ]


def files(plan: Plan) -> dict[str, dict[str, Any]]:
    """Ours that the node reads, by their paths below FILES."""
    pods = {pod: {"spec": {"containers": [_weight(pod) | _probes(pod, plan)]}} for pod in WEIGHTS}
    patches = pods | {"corednsdeployment": {"spec": _names(plan)}}
    return {AUTHENTICATION: authentication(plan.version), KUBERC: preferences()} | {
        f"{PATCHES}/{target}+strategic.json": patch for target, patch in patches.items()
    }


def authentication(version: Version) -> dict[str, Any]:
    """Whoever has no certificate or token learns whether the API server is well, and nothing else."""
    return {
        "kind": "AuthenticationConfiguration",
        "apiVersion": f"apiserver.config.k8s.io/{'v1' if version >= SETTLED else 'v1beta1'}",
        "anonymous": {"enabled": True, "conditions": [{"path": path} for path in HEALTH]},
    }


def preferences() -> dict[str, Any]:
    """What kind installs is known to be valid: to have it compared with the API's whole description takes seconds."""
    unchecked = [{"name": "validate", "default": "false"}]
    defaults = [{"command": command, "options": unchecked} for command in ("create", "apply")]
    return {"apiVersion": "kubectl.config.k8s.io/v1beta1", "kind": "Preference", "defaults": defaults}


def kubeadm(plan: Plan) -> list[dict[str, Any]]:
    """Patches of what kind writes for kubeadm and kubelet."""
    keys = {"encryptionAlgorithm": "ECDSA-P256"} if plan.beta4 else {"featureGates": {"PublicKeysECDSA": True}}
    waits = {"timeouts": timeouts(plan.patience)} if plan.beta4 else {}
    return [
        {"kind": "ClusterConfiguration", **keys, "etcd": {"local": _etcd(plan)}}
        | {"apiServer": _api_server(plan), **_controllers(plan)},
        {"kind": "InitConfiguration", "bootstrapTokens": [{"token": plan.token}]}
        | {"nodeRegistration": {"name": plan.name}, "patches": {"directory": f"{FILES}/{PATCHES}"}}
        | {"skipPhases": list(SKIPPED), **waits},
        {"kind": "JoinConfiguration", "discovery": {"bootstrapToken": {"token": plan.token}}},
        {"kind": "KubeletConfiguration", "systemReserved": dict(plan.reserved)}
        | {
            # Upstream's 10 s are what a node may be ready without anybody hearing of it.
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": round(40 * plan.lease),
            "runtimeRequestTimeout": _seconds(120 * plan.patience),
        },
    ]


def _api_server(plan: Plan) -> dict[str, Any]:
    inside = f"/etc/kubernetes/{AUTHENTICATION}"
    # The one of kubeadm's waits that v1beta3 has a word for.
    wait = {} if plan.beta4 else {"timeoutForControlPlane": timeouts(plan.patience)["controlPlaneComponentHealthCheck"]}
    arguments, volumes = (
        {"authentication-config": inside},
        [_volume("authentication", f"{FILES}/{AUTHENTICATION}", inside)],
    )
    if door := _door(plan):
        arguments |= {"etcd-servers": door} | dict.fromkeys(("etcd-cafile", "etcd-certfile", "etcd-keyfile"), "")
        volumes.append(_volume("etcd", _data(plan), _data(plan), kind="DirectoryOrCreate"))
    return {"extraArgs": _arguments(arguments, plan), "extraVolumes": volumes, **_garbage(plan), **wait}


def _volume(name: str, source: str, target: str, kind: str = "File") -> dict[str, Any]:
    """Not read-only once more: the runtime would mount it anew, which fails where a flag is locked (runc 1.1)."""
    return {"name": name, "hostPath": source, "mountPath": target, "readOnly": False, "pathType": kind}


def _etcd(plan: Plan) -> dict[str, Any]:
    """Nobody wants its data back after a crash: they are in memory, or at least not waited for."""
    arguments = {"heartbeat-interval": f"{100 * plan.lease:.0f}", "election-timeout": f"{1000 * plan.lease:.0f}"}
    if plan.etcd == "disk":
        arguments["unsafe-no-fsync"] = "true"
    if door := _door(plan):
        arguments |= dict.fromkeys(("listen-client-urls", "advertise-client-urls"), door)
    place = {"dataDir": ETCD_IN_MEMORY} if plan.etcd == "memory" else {}
    return {**place, "extraArgs": _arguments(arguments, plan), **_garbage(plan)}


def _data(plan: Plan) -> str:
    return ETCD_IN_MEMORY if plan.etcd == "memory" else ETCD_ON_DISK


def _door(plan: Plan) -> str:
    """By which the API server reaches etcd, if not by its port."""
    return f"unix://{_data(plan)}/door" if plan.version >= BY_SOCKET else ""


def _garbage(plan: Plan) -> dict[str, Any]:
    return {"extraEnvs": [GARBAGE]} if plan.beta4 else {}


def _controllers(plan: Plan) -> dict[str, Any]:
    """There is one of each. Yet an election keeps them from work that must fail until the API server answers it."""
    leases = {"lease-duration": 15, "renew-deadline": 10}
    elections = {f"leader-elect-{name}": _seconds(limit * plan.lease) for name, limit in leases.items()}
    # All wait for the first controller, and it asks for a hundred lists, which upstream's 20 a second would spread.
    elections["leader-elect-retry-period"] = "1s"
    calls = {"kube-api-qps": "200", "kube-api-burst": "400"}
    grace = {"node-monitor-grace-period": _seconds(50 * plan.patience)}
    return {
        "controllerManager": {"extraArgs": _arguments(elections | calls | grace, plan)},
        "scheduler": {"extraArgs": _arguments(elections, plan)},
    }


def timeouts(patience: float) -> dict[str, str]:
    """kubeadm's own, as they are in 1.36, for who has patience."""
    minutes = {
        "controlPlaneComponentHealthCheck": 4,
        "kubeletHealthCheck": 4,
        "kubernetesAPICall": 1,
        "etcdAPICall": 2,
        "tlsBootstrap": 5,
        "discovery": 5,
    }
    return {name: _seconds(limit * 60 * patience) for name, limit in minutes.items()}


def _weight(pod: str) -> dict[str, Any]:
    return {"name": pod, "resources": {"requests": {"cpu": WEIGHTS[pod]}}}


def _probes(pod: str, plan: Plan) -> dict[str, Any]:
    """kubeadm's own, as they are in 1.36: a component that is restarted for being slow makes all others slower."""
    timeout = round(15 * plan.patience)
    often = round(10 * plan.lease)
    probes = {
        "startupProbe": {"timeoutSeconds": timeout},
        "livenessProbe": {
            "timeoutSeconds": timeout,
            "periodSeconds": often,
            "failureThreshold": round(80 * plan.patience / often),
        },
    }
    if pod == "kube-apiserver":
        probes["readinessProbe"] = {"timeoutSeconds": timeout, "periodSeconds": round(plan.lease)}
    return probes


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


def _arguments(values: Mapping[str, str], plan: Plan) -> list[dict[str, str]] | dict[str, str]:
    return arguments(values) if plan.beta4 else dict(values)


def arguments(values: Mapping[str, str]) -> list[dict[str, str]]:
    """As v1beta4 has them."""
    return [{"name": name, "value": value} for name, value in values.items()]


def _seconds(number: float) -> str:
    return f"{number:.0f}s"
