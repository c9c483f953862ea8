"""When what of a cluster came up, as its objects say: `kubectl get nodes,pods --all-namespaces -o json` comes in.

A line each, in the order of time: @SECONDS milestone TEXT. Kubernetes keeps no parts of seconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any


def milestones(items: list[dict[str, Any]]) -> list[tuple[float, str]]:
    return sorted((datetime.fromisoformat(at).timestamp(), text) for item in items for at, text in _of(item))


def _of(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    name = f"{item['kind'].lower()} {item['metadata']['name']}"
    yield item["metadata"]["creationTimestamp"], f"{name} is made"
    for condition in item["status"].get("conditions", []):
        if condition["status"] == "True" and condition["type"] in ("PodScheduled", "Ready"):
            yield condition["lastTransitionTime"], f"{name}: {condition['type']}"
    for container in item["status"].get("containerStatuses", []):
        if running := container["state"].get("running"):
            again = f", after {container['restartCount']} restarts" if container["restartCount"] else ""
            yield running["startedAt"], f"{name} runs{again}"


if __name__ == "__main__":
    for moment, text in milestones(json.load(sys.stdin)["items"]):
        print(f"@{moment:.0f} milestone {text}")
