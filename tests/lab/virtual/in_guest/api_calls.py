"""Call an API in several ways: the calls on stdin, the statuses of its answers on stdout.

Runs in a guest as the user who calls, with nothing but Python and its YAML. The server may be any.
"""

import base64
import http.client
import json
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

LIMIT = 120


def status(call: dict[str, Any]) -> int:
    url = urlsplit(call["url"])
    connection = http.client.HTTPSConnection(url.netloc, context=tls(call["kubeconfig"]), timeout=LIMIT)
    headers = {"Content-Type": "application/json"}
    if call["token"]:
        headers["Authorization"] = f"Bearer {call['token']}"
    try:
        connection.request(call["method"], url.path, json.dumps(call["body"]) if call["body"] else None, headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def tls(kubeconfig: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if kubeconfig:
        user = yaml.safe_load(Path(kubeconfig).read_text())["users"][0]["user"]
        with tempfile.NamedTemporaryFile() as pair:
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]))
            pair.flush()
            context.load_cert_chain(pair.name)
    return context


print(json.dumps([status(call) for call in json.load(sys.stdin)]))
