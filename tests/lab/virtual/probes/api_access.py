"""Answers of an API to callers on a node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..guest.shell import Shell

PROGRAM = Path(__file__).resolve().parents[1] / "in_guest" / "api_calls.py"
# What every kind of this age writes into its configuration, unless told otherwise.
WELL_KNOWN = "abcdef.0123456789abcdef"


@dataclass(frozen=True)
class Call:
    """With a token, or with the client certificate of a kubeconfig that the caller can read, or with nothing."""

    url: str
    method: str = "GET"
    body: dict[str, Any] = field(default_factory=dict)
    token: str = ""
    kubeconfig: str = ""


def answers(shell: Shell, calls: Sequence[Call], user: str) -> list[int]:
    """The status of each call; 0 without an answer. The caller does not check the server's certificate."""
    argv = ["python3", "-c", PROGRAM.read_text()]
    wanted = json.dumps([asdict(call) for call in calls]).encode()
    found: list[int] = json.loads(shell.run(argv, user=user, input=wanted).stdout)
    return found


def signing_request(server: str, name: str, token: str = "") -> Call:
    """For a certificate with which somebody would be in the cluster."""
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"request": "", "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
    }
    return Call(f"{server}/apis/certificates.k8s.io/v1/certificatesigningrequests", "POST", body, token)
