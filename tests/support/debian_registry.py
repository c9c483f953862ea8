"""Debian's own registry of images, as a site may run it: over TLS, and for users who are in a file."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from support.archives import MANIFEST
from support.engine import CACHE
from support.registry import PASSWORD, USER, certificate

LOADER: Final = "usr/lib64/ld-linux-x86-64.so.2"
LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
PROGRAM: Final = "usr/bin/docker-registry"
# Of PASSWORD, in the only form that it takes.
HTPASSWD: Final = f"{USER}:$2b$05$abcdefghijklmnopqrstuuIt/9/tGzLcigNq/.RWIDjeEVR30RSf."
LIMIT: Final = 20.0


def program() -> list[str | Path]:
    """This node's, or the lab's in its tree; nothing where there is none."""
    for tree in CACHE.glob("registry-*/root"):
        if (tree / PROGRAM).exists():
            return [tree / LOADER, "--library-path", tree / LIBRARIES, tree / PROGRAM]
    found = shutil.which("docker-registry")
    return [found] if found else []


@contextlib.contextmanager
def serving(argv: Sequence[str | Path], place: Path, contents: Mapping[str, bytes], manifest: str) -> Iterator[str]:
    """Its address; this manifest is in there as kindest/node:v1."""
    known, key = certificate(place)
    port = _free_port()
    (place / "htpasswd").write_text(f"{HTPASSWD}\n")
    (place / "registry.yml").write_text(json.dumps(_settings(place, port, known, key)))
    with (place / "registry.log").open("wb") as log:
        process = subprocess.Popen([*argv, "serve", place / "registry.yml"], stdout=log, stderr=log, env={**os.environ})
    try:
        _await(process, port, place / "registry.log")
        _push(port, known, contents, manifest)
        yield f"localhost:{port}"
    finally:
        process.kill()
        process.wait()


def _settings(place: Path, port: int, known: Path, key: Path) -> dict[str, object]:
    """YAML holds JSON."""
    return {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": f"{place}/registry"}},
        "http": {"addr": f"127.0.0.1:{port}", "tls": {"certificate": f"{known}", "key": f"{key}"}},
        "auth": {"htpasswd": {"realm": "site", "path": f"{place}/htpasswd"}},
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise AssertionError(f"the registry does not come up: {log.read_text()}")


def _push(port: int, known: Path, contents: Mapping[str, bytes], manifest: str) -> None:
    """As who builds images does."""
    tls = ssl.create_default_context(cafile=os.fspath(known))
    connection = http.client.HTTPSConnection("localhost", port, context=tls, timeout=LIMIT)
    login = {"Authorization": f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"}

    def ask(method: str, path: str, body: bytes = b"", kind: str = "application/octet-stream") -> str:
        connection.request(method, path, body, {**login, "Content-Type": kind})
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status in (201, 202), (path, answer.status, said)
        return answer.getheader("Location", "")

    with contextlib.closing(connection):
        for digest, data in contents.items():
            if digest != manifest:
                upload = urlsplit(ask("POST", "/v2/kindest/node/blobs/uploads/"))
                ask("PUT", f"{upload.path}?{upload.query}&digest={digest}", data)
        ask("PUT", "/v2/kindest/node/manifests/v1", contents[manifest], MANIFEST)
