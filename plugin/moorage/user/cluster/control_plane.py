"""The configuration of a job's control plane for kubeadm, and the patches of its pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from moorage.common.node_image import Version
    from moorage.user.cluster.kind_config import Plan

# From this version on the format of authentication files is stable, and kubectl reads preferences.
SETTLED: Final = (1, 34)
# The directory of our files on the node.
FILES: Final = "/kind/moorage"
AUTHENTICATION: Final = "authentication.json"
# The kubelet, and kubeadm while it waits, ask for these without a certificate.
HEALTH: Final = ("/livez", "/readyz", "/healthz")
# The first is in a tmpfs that every node of kind has; the second is etcd's default.
ETCD_IN_MEMORY: Final = "/run/etcd"
ETCD_ON_DISK: Final = "/var/lib/etcd"
# From this version on etcd (3.6) can listen on a Unix socket. Only root of the node can use it, as only root can read
# the keys for its port. The API server makes over a hundred connections when it starts, and saves their handshakes.
BY_SOCKET: Final = (1, 34)
# With Go's default of 100, etcd and the API server collect garbage all the time while they start, because they have
# little in memory then.
GARBAGE: Final = {"name": "GOGC", "value": "200"}

# Requests of CPU time, which set the weights of the cgroups. The first two have more, because all others wait for them.
# Together they leave more for pods than kubeadm's default of 650m.
WEIGHTS: Final = {
    "etcd": "200m",
    "kube-apiserver": "250m",
    "kube-controller-manager": "100m",
    "kube-scheduler": "25m",
}


def parts(plan: Plan) -> dict[str, Any]:
    return {"etcd": {"local": _etcd(plan)}, "apiServer": _api_server(plan), **_controllers(plan)}


def pods(plan: Plan) -> dict[str, dict[str, Any]]:
    """The patch for each pod."""
    return {pod: {"spec": {"containers": [_weight(pod) | _probes(pod, plan)]}} for pod in WEIGHTS}


def authentication(version: Version) -> dict[str, Any]:
    """A caller without a certificate or token can read the health of the API server, and nothing else."""
    return {
        "kind": "AuthenticationConfiguration",
        "apiVersion": f"apiserver.config.k8s.io/{'v1' if version >= SETTLED else 'v1beta1'}",
        "anonymous": {"enabled": True, "conditions": [{"path": path} for path in HEALTH]},
    }


def _api_server(plan: Plan) -> dict[str, Any]:
    inside = f"/etc/kubernetes/{AUTHENTICATION}"
    # The only timeout of kubeadm's that v1beta3 has an option for.
    wait = {} if plan.beta4 else {"timeoutForControlPlane": timeouts(plan.patience)["controlPlaneComponentHealthCheck"]}
    arguments = {"authentication-config": inside}
    volumes = [_volume("authentication", f"{FILES}/{AUTHENTICATION}", inside)]
    if url := _socket_url(plan):
        arguments |= {"etcd-servers": url} | dict.fromkeys(("etcd-cafile", "etcd-certfile", "etcd-keyfile"), "")
        volumes.append(_volume("etcd", _data(plan), _data(plan), kind="DirectoryOrCreate"))
    return {"extraArgs": _arguments(arguments, plan), "extraVolumes": volumes, **_garbage(plan), **wait}


def _volume(name: str, source: str, target: str, kind: str = "File") -> dict[str, Any]:
    """A volume. It is not read-only: then the runtime would mount it again, which fails on locked flags (runc 1.1)."""
    return {"name": name, "hostPath": source, "mountPath": target, "readOnly": False, "pathType": kind}


def _etcd(plan: Plan) -> dict[str, Any]:
    """etcd. Its data need not survive a crash, so they are in memory, or on a disk without fsync."""
    arguments = {"heartbeat-interval": f"{100 * plan.lease:.0f}", "election-timeout": f"{1000 * plan.lease:.0f}"}
    if plan.etcd == "disk":
        arguments["unsafe-no-fsync"] = "true"
    if url := _socket_url(plan):
        # The URL that etcd advertises must still be a port, which nobody uses.
        arguments["listen-client-urls"] = url
    place = {"dataDir": ETCD_IN_MEMORY} if plan.etcd == "memory" else {}
    return {**place, "extraArgs": _arguments(arguments, plan), **_garbage(plan)}


def _data(plan: Plan) -> str:
    return ETCD_IN_MEMORY if plan.etcd == "memory" else ETCD_ON_DISK


def _socket_url(plan: Plan) -> str:
    """The URL of etcd's socket; empty if the API server has to use the port."""
    return f"unix://{_data(plan)}/door" if plan.version >= BY_SOCKET else ""


def _garbage(plan: Plan) -> dict[str, Any]:
    return {"extraEnvs": [GARBAGE]} if plan.beta4 else {}


def _controllers(plan: Plan) -> dict[str, Any]:
    """There is one of each, but the election delays them until the API server answers: before that all work fails."""
    leases = {"lease-duration": 15, "renew-deadline": 10}
    elections = {f"leader-elect-{name}": seconds(limit * plan.election) for name, limit in leases.items()}
    # The first controller reads a hundred lists while all others wait; the default of 20 a second would delay that.
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
    """kubeadm's probes (1.36), with longer timeouts: a restart of a slow component would slow down all others."""
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
    """kubeadm's timeouts (1.36), multiplied by the site's factor."""
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
    """Arguments in the form of v1beta4."""
    return [{"name": name, "value": value} for name, value in values.items()]


def seconds(number: float) -> str:
    return f"{number:.0f}s"
