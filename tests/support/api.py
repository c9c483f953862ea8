"""An API server in miniature: real TLS and client certificates, answers from a table."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

_SETTINGS = """\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
subjectAltName = {names}
keyUsage = critical, digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[client]
keyUsage = critical, digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
READY: dict[str, Any] = {
    "/api/v1/nodes": {
        "items": [{"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]
    },
    "/apis/apps/v1/namespaces/kube-system/deployments/coredns": {
        "status": {"conditions": [{"type": "Available", "status": "True"}]}
    },
    "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy": {
        "status": {"desiredNumberScheduled": 1, "numberReady": 1}
    },
    "/api/v1/namespaces/default/serviceaccounts/default": {"metadata": {"name": "default"}},
}


class Authority:
    """Certificates of a new authority, made by openssl in a directory."""

    def __init__(self, place: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> None:
        self.place = place
        place.mkdir()
        (place / "openssl.cnf").write_text(_SETTINGS.format(names=names))
        self._make("authority")
        for name in ("server", "client"):
            self._make(name, "-CA", str(place / "authority.crt"), "-CAkey", str(place / "authority.key"))

    def path(self, name: str) -> Path:
        return self.place / name

    def _make(self, name: str, *signer: str) -> None:
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        settings = ["-config", "openssl.cnf", "-extensions", name, "-subj", f"/CN={name}", "-days", "3"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
        argv = ["openssl", "req", "-x509", "-batch", *key, *settings, *files, *signer]
        subprocess.run(argv, cwd=self.place, check=True, capture_output=True, timeout=30)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Who does not trust us ends the connection in the middle: that is meant to happen."""


class ApiServer:
    """Serves `answers`, by path, to who has a certificate; `asked` are the requests so far. An answer is a status or
    an object."""

    def __init__(self, authority: Authority, answers: Mapping[str, Any]) -> None:
        self.authority = authority
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.refused: dict[str, Iterator[int]] = {}
        self.server = _Server(("127.0.0.1", 0), self._handler())
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(authority.path("server.crt"), authority.path("server.key"))
        tls.load_verify_locations(authority.path("authority.crt"))
        tls.verify_mode = ssl.CERT_REQUIRED
        self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.server_address[1]}"

    def kubeconfig(self, authority: Authority | None = None, server: str = "") -> str:
        """As kind writes it; another authority's is one that does not fit."""
        files = authority or self.authority
        cluster = {"server": server or self.url, "certificate-authority-data": _packed(files.path("authority.crt"))}
        user = {"client-certificate-data": _packed(files.path("client.crt"))}
        user["client-key-data"] = _packed(files.path("client.key"))
        return json.dumps({"clusters": [{"cluster": cluster}], "users": [{"user": user}]})

    def refuse(self, method: str, *statuses: int) -> None:
        """So often."""
        self.refused[method] = iter(statuses)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.asked.append(f"{self.command} {self.path}")
                answer = next(outer.refused.get(self.command, iter(())), outer.answers.get(self.path, 404))
                status, content = (answer, {}) if isinstance(answer, int) else (200, answer)
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_DELETE = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        return Handler


def _packed(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
