"""Wait until a cluster is usable: every node Ready, CoreDNS and kube-proxy there, the default service account made.

await_ready.py KUBECONFIG [SECONDS]

One process that asks the API itself: a kubectl for each look would cost more than what it waits for. It loads little,
for in a job of Moorage's, whose cluster is ready by then, its own start is counted as well.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
import sys
import time
from typing import Any

INTERVAL = 0.5


def main(kubeconfig: str, limit: str = "1800") -> None:
    deadline = time.monotonic() + float(limit)
    api = Api(kubeconfig)
    try:
        while missing := unready(api):
            if time.monotonic() > deadline:
                sys.exit(f"not ready after {limit} s: {missing}")
            time.sleep(INTERVAL)
    finally:
        api.connection.close()


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
        # pathlib is not loaded for that.
        with open(kubeconfig) as file:  # noqa: PTH123
            # As kind writes it.
            said = dict(re.findall(r"^ +([a-z-]+): (\S+)$", file.read(), re.MULTILINE))
        tls = ssl.create_default_context(cadata=decoded(said["certificate-authority-data"]))
        pair = os.memfd_create("pair")
        os.write(pair, (decoded(said["client-certificate-data"]) + decoded(said["client-key-data"])).encode())
        tls.load_cert_chain(f"/proc/self/fd/{pair}")
        os.close(pair)
        address = said["server"].removeprefix("https://")
        self.connection = http.client.HTTPSConnection(address, context=tls, timeout=30)

    def get(self, path: str) -> dict[str, Any]:
        try:
            self.connection.request("GET", path)
            answer = self.connection.getresponse()
            body = answer.read()
        except BaseException:
            # It is made anew with the next question.
            self.connection.close()
            raise
        if answer.status != 200:
            raise http.client.HTTPException(f"{path}: {answer.status}")
        parsed: dict[str, Any] = json.loads(body)
        return parsed


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
