"""How the parts of a control plane are run in a job's cluster: what kubeadm is told of each, and of their pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from moorage.common.node_image import Version
    from moorage.user.cluster.kind_config import Plan

# From then on the format that says so is no beta any more, and kubectl heeds preferences.
SETTLED: Final = (1, 34)
# Where the node finds our files.
FILES: Final = "/kind/moorage"
AUTHENTICATION: Final = "authentication.json"
# What the kubelet asks without a certificate, and kubeadm in its waits.
HEALTH: Final = ("/livez", "/readyz", "/healthz")
# A tmpfs in every node of kind's, and where etcd has its data else.
ETCD_IN_MEMORY: Final = "/run/etcd"
ETCD_ON_DISK: Final = "/var/lib/etcd"
# From then on etcd (3.6) can be reached by a socket. That is for root of the node alone, as the keys are by which one
# would reach its port; and the API server, which makes more than a hundred connections when it starts, saves the
# handshake of each.
BY_SOCKET: Final = (1, 34)
# Go's own 100 has the two collect garbage again and again while they start, for they have little else in memory then.
GARBAGE: Final = {"name": "GOGC", "value": "200"}

# Of a CPU, to which the weights of their cgroups are made: all wait for the first two, which shall come up first. It
# also leaves pods more to ask for than kubeadm's own 650m would.
WEIGHTS: Final = {
    "etcd": "200m",
    "kube-apiserver": "250m",
    "kube-controller-manager": "100m",
    "kube-scheduler": "25m",
}


def parts(plan: Plan) -> dict[str, Any]:
    return {"etcd": {"local": _etcd(plan)}, "apiServer": _api_server(plan), **_controllers(plan)}


def pods(plan: Plan) -> dict[str, dict[str, Any]]:
    """What is patched of each pod."""
    return {pod: {"spec": {"containers": [_weight(pod) | _probes(pod, plan)]}} for pod in WEIGHTS}


def authentication(version: Version) -> dict[str, Any]:
    """Whoever has no certificate or token learns whether the API server is well, and nothing else."""
    return {
        "kind": "AuthenticationConfiguration",
        "apiVersion": f"apiserver.config.k8s.io/{'v1' if version >= SETTLED else 'v1beta1'}",
        "anonymous": {"enabled": True, "conditions": [{"path": path} for path in HEALTH]},
    }


def _api_server(plan: Plan) -> dict[str, Any]:
    inside = f"/etc/kubernetes/{AUTHENTICATION}"
    # The one of kubeadm's waits that v1beta3 has a word for.
    wait = {} if plan.beta4 else {"timeoutForControlPlane": timeouts(plan.patience)["controlPlaneComponentHealthCheck"]}
    arguments = {"authentication-config": inside}
    volumes = [_volume("authentication", f"{FILES}/{AUTHENTICATION}", inside)]
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
        # What it says of itself to others must be a port, which nobody asks for.
        arguments["listen-client-urls"] = door
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
    elections = {f"leader-elect-{name}": seconds(limit * plan.election) for name, limit in leases.items()}
    # All wait for the first controller, and it asks for a hundred lists, which upstream's 20 a second would spread.
    elections["leader-elect-retry-period"] = "1s"
    calls = {"kube-api-qps": "200", "kube-api-burst": "400"}
    grace = {"node-monitor-grace-period": seconds(50 * plan.patience)}
    return {
        "controllerManager": {"extraArgs": _arguments(elections | calls | grace, plan)},
        "scheduler": {"extraArgs": _arguments(elections, plan)},
    }


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
    return {name: seconds(limit * 60 * patience) for name, limit in minutes.items()}


def _arguments(values: Mapping[str, str], plan: Plan) -> list[dict[str, str]] | dict[str, str]:
    return arguments(values) if plan.beta4 else dict(values)


def arguments(values: Mapping[str, str]) -> list[dict[str, str]]:
    """As v1beta4 has them."""
    return [{"name": name, "value": value} for name, value in values.items()]


def seconds(number: float) -> str:
    return f"{number:.0f}s"
