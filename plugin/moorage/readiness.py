"""Whether a cluster can be used: asked of its API, for a kubectl for each look costs more than what it waits for."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import Any, Final

from moorage.api import Api, Refused
from moorage.deadline import Deadline

INTERVAL: Final = 0.3
NODES: Final = "/api/v1/nodes"
DNS: Final = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
PROXY: Final = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"
ACCOUNT: Final = "/api/v1/namespaces/default/serviceaccounts/default"


def wait(api: Api, deadline: Deadline, tell: Callable[[str], object]) -> str:
    """What is still missing at the deadline: nothing, if the cluster is ready. `tell` is called with each change."""
    told = ""
    while missing := lacking(api):
        if missing != told:
            tell(missing)
            told = missing
        if deadline.passed:
            return missing
        time.sleep(min(INTERVAL, deadline.left))
    return ""


def lacking(api: Api) -> str:
    """The first thing that is missing, in the order in which a cluster comes up."""
    try:
        return _nodes(api.get(NODES)) or _dns(api.get(DNS)) or _proxy(api.get(PROXY)) or _account(api.get(ACCOUNT))
    except Refused as refused:
        return f"the API answers {refused.status} to {str(refused).partition(':')[0]}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"the API does not answer ({type(error).__name__}: {error})"


def _nodes(found: dict[str, Any]) -> str:
    nodes = found.get("items", [])
    unready = [node["metadata"]["name"] for node in nodes if not _is_true(node.get("status", {}), "Ready")]
    if not nodes:
        return "there is no node yet"
    return f"node {unready[0]} is not Ready" if unready else ""


def _dns(found: dict[str, Any]) -> str:
    return "" if _is_true(found.get("status", {}), "Available") else "CoreDNS is not available"


def _proxy(found: dict[str, Any]) -> str:
    status = found.get("status", {})
    wanted, there = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    return "" if wanted and there >= wanted else f"kube-proxy is ready on {there} of {wanted or 1} nodes"


def _account(found: dict[str, Any]) -> str:
    """Without it no pod is admitted; its absence is a 404."""
    return "" if found.get("metadata") else "there is no default service account"


def _is_true(status: dict[str, Any], condition: str) -> bool:
    return any(one["type"] == condition and one["status"] == "True" for one in status.get("conditions", []))
