"""A client of the cluster's API, with the client certificate of a kubeconfig; it checks the server's certificate."""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from moorage.common.errors import MoorageError

NOT_FOUND: Final = 404


class Refused(MoorageError):
    """The API has answered with an error."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(f"{what}: {status}")
        self.status = status


@dataclass(frozen=True)
class Access:
    """The API's URL and certificate authority, and the client's certificate."""

    server: str
    authority: str
    certificate: str
    key: str = field(repr=False)

    @classmethod
    def of(cls, kubeconfig: Path) -> Self:
        # Imported only here, because it takes long.
        import yaml

        try:
            content = yaml.safe_load(kubeconfig.read_text())
            cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
            return cls(
                server=str(cluster["server"]),
                authority=_decoded(cluster["certificate-authority-data"]),
                certificate=_decoded(user["client-certificate-data"]),
                key=_decoded(user["client-key-data"]),
            )
        except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError) as error:
            raise MoorageError(f"{kubeconfig} is not understood: {type(error).__name__}: {error}") from error

    @property
    def port(self) -> int:
        return urlsplit(self.server).port or 443


class Api:
    """One connection; a lost one is replaced."""

    def __init__(self, access: Access, limit: float) -> None:
        tls = ssl.create_default_context(cadata=access.authority)
        with _in_memory(access.certificate + access.key) as pair:
            tls.load_cert_chain(pair)
        host = urlsplit(access.server).hostname or ""
        self._connection = http.client.HTTPSConnection(host, access.port, context=tls, timeout=limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str) -> dict[str, Any]:
        return self._ask("GET", path)

    def remove(self, path: str) -> None:
        """Delete an object; succeed if it is not there."""
        try:
            self._ask("DELETE", path)
        except Refused as refused:
            if refused.status != NOT_FOUND:
                raise

    def _ask(self, method: str, path: str) -> dict[str, Any]:
        """Raise Refused if the API answers with an error, OSError or http.client.HTTPException without an answer."""
        try:
            self._connection.request(method, path, headers={"Accept": "application/json"})
            answer = self._connection.getresponse()
            body = answer.read()
        except BaseException:
            self._connection.close()
            raise
        if answer.status != http.client.OK:
            raise Refused(f"{method} {path}", answer.status)
        content: dict[str, Any] = json.loads(body)
        return content


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """A path to a text in memory, for a library that reads keys only from files."""
    descriptor = os.memfd_create("pair")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except binascii.Error as error:
        raise ValueError("no base64") from error
