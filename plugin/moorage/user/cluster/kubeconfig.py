"""The kubeconfig in the job's run directory, and the environment in which the job's script finds its cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from moorage.common.errors import UserError
from moorage.common.podman import Places


def place(places: Places) -> Path:
    """The kubeconfig. Only the job's owner can read it, and enter its directory."""
    return places.user / "kubeconfig"


def tools(places: Places) -> Path:
    """The directory of the programs that come with the cluster, such as kubectl."""
    return places.user / "bin"


def there(places: Places) -> Path:
    path = place(places)
    if not path.is_file():
        raise UserError(
            "this job has no cluster on this node",
            "submit it with --k8s=1, and ask on a node that takes part",
            code="M-KUBE-15",
        )
    return path


def write(places: Places, content: Mapping[str, Any]) -> None:
    """Write a kubeconfig that only its owner can read. JSON is YAML."""
    path = place(places)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(content))


def script(environ: Mapping[str, str], places: Places, name: str, server: str) -> dict[str, str]:
    """The environment of the job's script. Older scripts use the K8S_ variables."""
    path = environ.get("PATH", "").split(":")
    after = path.index(str(places.programs)) + 1 if str(places.programs) in path else 0
    return {
        **environ,
        "KUBECONFIG": str(place(places)),
        "PATH": ":".join([*path[:after], str(tools(places)), *path[after:]]),
        "K8S_CLUSTER_NAME": name,
        "K8S_CLUSTER_API": server,
        "K8S_PORT": str(urlsplit(server).port or 443),
    }
