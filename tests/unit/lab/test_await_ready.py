"""The program that says of every cluster in a comparison whether it is ready."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.api import READY, ApiServer, Authority

pytestmark = pytest.mark.commands("openssl")

PROGRAM = Path(__file__).parents[2] / "lab/virtual/in_guest/reference/await_ready.py"
DNS = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"


def asked(place: Path, answers: dict[str, Any]) -> None:
    """Look once at such a cluster, whose kubeconfig is written as kind does."""
    with ApiServer(Authority(place / "pki"), answers) as api:
        (place / "kubeconfig").write_text(yaml.safe_dump(json.loads(api.kubeconfig()), width=100_000))
        runpy.run_path(str(PROGRAM))["main"](str(place / "kubeconfig"), "0")


def test_a_ready_cluster_is_ready(tmp_path: Path) -> None:
    asked(tmp_path, READY)


@pytest.mark.parametrize(
    ("missing", "answer", "line"),
    [
        ("/api/v1/nodes", {"items": []}, "a node is not Ready"),
        (DNS, {"status": {}}, "CoreDNS is not available"),
        ("/api/v1/namespaces/default/serviceaccounts/default", 404, "serviceaccounts/default: 404"),
    ],
)
def test_one_that_lacks_something_is_not(tmp_path: Path, missing: str, answer: object, line: str) -> None:
    with pytest.raises(SystemExit, match=f"^not ready after 0 s: .*{line}$"):
        asked(tmp_path, {**READY, missing: answer})
