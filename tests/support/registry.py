"""A registry of images over TLS that wants a name and a password; as small as Podman lets it be."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from moorage.common.command import run
from support.archives import MANIFEST

USER, PASSWORD = "robot", "pass word"


def certificate(place: Path) -> tuple[Path, Path]:
    """A certificate that is its own authority, and its key."""
    known, key = place / "ca.crt", place / "key.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    options = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    run(["openssl", "req", "-x509", *options, "-addext", names, "-keyout", key, "-out", known])
    return known, key


class Server(http.server.ThreadingHTTPServer):
    """At its end all its threads have ended: one that has not would keep the test in its mount namespace."""

    daemon_threads = False


@contextmanager
def serving(place: Path, blobs: Mapping[str, bytes], manifest: str) -> Iterator[str]:
    """Its address; every name and tag there is this one manifest."""
    wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != f"Basic {wanted}":
                self._answer(401, b"", {"WWW-Authenticate": 'Basic realm="test"'})
                return
            *_, kind, name = self.path.rstrip("/").split("/")
            digest = manifest if kind == "manifests" else name
            if self.path == "/v2/":
                self._answer(200, b"{}", {})
            elif digest in blobs:
                types = {"Content-Type": MANIFEST} if kind == "manifests" else {}
                self._answer(200, blobs[digest], {**types, "Docker-Content-Digest": digest})
            else:
                self._answer(404, json.dumps({"errors": []}).encode(), {})

        do_HEAD = do_GET

        def _answer(self, code: int, data: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(code)
            for name, value in ({"Content-Length": str(len(data))} | dict(headers)).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, format: str, *words: object) -> None:
            pass

    known, key = certificate(place)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(known, key)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
