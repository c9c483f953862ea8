"""Wait until a cluster is usable: every node Ready, CoreDNS and kube-proxy there, the default service account made.

await_ready.py KUBECONFIG [SECONDS]

One process that asks the API itself: a kubectl for each look would cost more than what it waits for.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

INTERVAL = 0.5


def main(kubeconfig: str, limit: str = "1800") -> None:
    deadline = time.monotonic() + float(limit)
    api = Api(kubeconfig)
    while missing := unready(api):
        if time.monotonic() > deadline:
            sys.exit(f"not ready after {limit} s: {missing}")
        time.sleep(INTERVAL)


def unready(api: Api) -> str:
    """What is still missing, or nothing."""
    try:
        nodes = api.get("/api/v1/nodes")["items"]
        if not nodes or not all(is_true(node["status"].get("conditions", []), "Ready") for node in nodes):
            return "a node is not Ready"
        dns = api.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns")
        if not is_true(dns["status"].get("conditions", []), "Available"):
            return "CoreDNS is not available"
        proxy = api.get("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy")["status"]
        if proxy.get("numberReady", 0) < len(nodes):
            return "kube-proxy is not ready on every node"
        api.get("/api/v1/namespaces/default/serviceaccounts/default")
    except (OSError, http.client.HTTPException) as error:
        return f"the API does not answer: {error}"
    return ""


def is_true(conditions: list[dict[str, str]], kind: str) -> bool:
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)


class Api:
    """The cluster's API with the client certificate of a kubeconfig; the server's certificate is checked."""

    def __init__(self, kubeconfig: str) -> None:
        config = yaml.safe_load(Path(kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.address = urllib.parse.urlparse(cluster["server"]).netloc
        self.tls = ssl.create_default_context(cadata=decoded(cluster["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w") as pair:
            pair.write(decoded(user["client-certificate-data"]) + decoded(user["client-key-data"]))
            pair.flush()
            self.tls.load_cert_chain(pair.name)

    def get(self, path: str) -> dict[str, Any]:
        connection = http.client.HTTPSConnection(self.address, context=self.tls, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise http.client.HTTPException(f"{path}: {answer.status}")
            parsed: dict[str, Any] = json.loads(body)
            return parsed
        finally:
            connection.close()


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


main(*sys.argv[1:])
