"""Whether a cluster can be used. This asks the API itself: starting kubectl for each look would take longer."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from moorage.common.deadline import Deadline
from moorage.common.events import Watch
from moorage.user.cluster import node_resources
from moorage.user.cluster.api import Api, Refused
from moorage.user.cluster.invitation import JoiningNodes

INTERVAL: Final = 0.3
NODES: Final = "/api/v1/nodes"
DNS: Final = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
PROXY: Final = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"
ACCOUNT: Final = "/api/v1/namespaces/default/serviceaccounts/default"


def wait(api: Api, deadline: Deadline, tell: Callable[[str], object], joining: JoiningNodes, watch: Watch) -> str:
    """Wait until the cluster is ready; return what is missing at the deadline. `tell` is called with each change."""
    told = ""
    while missing := lacking(api, joining):
        if missing != told:
            tell(missing)
            told = missing
        if deadline.passed:
            return missing
        watch.pause(min(INTERVAL, deadline.left))
    return ""


def lacking(api: Api, joining: JoiningNodes) -> str:
    """The first thing that is missing, in the order in which a cluster comes up; empty if nothing is."""
    try:
        nodes = list(_found(api.get(NODES)))
        absent = sum(node.by in _labels(joining.given_up) for node in nodes)
        return (
            _nodes(nodes, joining) or _dns(api.get(DNS)) or _proxy(api.get(PROXY), absent) or _account(api.get(ACCOUNT))
        )
    except Refused as refused:
        return f"the API answers {refused.status} to {str(refused).partition(':')[0]}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"the API does not answer ({type(error).__name__}: {error})"


def late(api: Api, joining: JoiningNodes) -> set[str]:
    """The awaited nodes that are not Ready."""
    try:
        ready = {node.by for node in _found(api.get(NODES)) if node.ready}
        return {name for name in joining.awaited if node_resources.label(name) not in ready}
    except (Refused, OSError, http.client.HTTPException, ValueError):
        return set()


@dataclass(frozen=True)
class _Node:
    name: str
    # Slurm's name, as far as it can be a label.
    by: str
    ready: bool


def _found(answer: dict[str, Any]) -> Iterator[_Node]:
    for node in answer.get("items", []):
        labels = node["metadata"].get("labels", {})
        yield _Node(
            node["metadata"]["name"], labels.get(node_resources.NODE, ""), _is_true(node.get("status", {}), "Ready")
        )


def _nodes(nodes: list[_Node], joining: JoiningNodes) -> str:
    if not nodes:
        return "there is no node yet"
    if unready := [node.name for node in nodes if not node.ready and node.by not in _labels(joining.given_up)]:
        return f"node {unready[0]} is not Ready"
    missing = sorted(name for name in joining.awaited if node_resources.label(name) not in {node.by for node in nodes})
    return f"{missing[0]} has not joined" if missing else ""


def _labels(names: Iterable[str]) -> set[str]:
    return {node_resources.label(name) for name in names}


def _dns(found: dict[str, Any]) -> str:
    return "" if _is_true(found.get("status", {}), "Available") else "CoreDNS is not available"


def _proxy(found: dict[str, Any], absent: int) -> str:
    status = found.get("status", {})
    wanted, there = status.get("desiredNumberScheduled", 0) - absent, status.get("numberReady", 0)
    return "" if wanted and there >= wanted else f"kube-proxy is ready on {there} of {wanted or 1} nodes"


def _account(found: dict[str, Any]) -> str:
    """The default service account, without which no pod is admitted; its absence is a 404."""
    return "" if found.get("metadata") else "there is no default service account"


def _is_true(status: dict[str, Any], condition: str) -> bool:
    return any(one["type"] == condition and one["status"] == "True" for one in status.get("conditions", []))
