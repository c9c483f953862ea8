"""When what of a cluster came up, out of what its API says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[2] / "lab/virtual/in_guest/reference/milestones.py"
NODE = {
    "kind": "Node",
    "metadata": {"name": "berth1", "creationTimestamp": "2026-01-01T00:00:10Z"},
    "status": {
        "conditions": [
            {"type": "MemoryPressure", "status": "False", "lastTransitionTime": "2026-01-01T00:00:10Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:40Z"},
        ]
    },
}


def pod(restarts: int, **state: object) -> dict[str, Any]:
    status = {"containerStatuses": [{"restartCount": restarts, "state": state}]}
    metadata = {"name": "dns", "creationTimestamp": "2026-01-01T00:00:20Z"}
    return {"kind": "Pod", "metadata": metadata, "status": status}


def texts(*items: dict[str, Any]) -> list[str]:
    return [text for _, text in runpy.run_path(str(PROGRAM))["milestones"](list(items))]


def test_in_the_order_of_time() -> None:
    running = pod(0, running={"startedAt": "2026-01-01T00:00:30Z"})
    assert texts(running, NODE) == ["node berth1 is made", "pod dns is made", "pod dns runs", "node berth1: Ready"]


def test_who_came_up_only_after_a_restart_is_told_of() -> None:
    assert texts(pod(2, running={"startedAt": "2026-01-01T00:00:30Z"}))[-1] == "pod dns runs, after 2 restarts"


def test_who_has_not_come_up_is_made_and_no_more() -> None:
    assert texts(pod(0, waiting={"reason": "ContainerCreating"})) == ["pod dns is made"]
