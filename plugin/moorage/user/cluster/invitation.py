"""What the first node of a cluster lets the others know, so that they can join it and be its users' way in."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from moorage.user.cluster.api import Access

PORT: Final = 6443


@dataclass(frozen=True)
class Invitation:
    """Where the API is, whom to believe there, what a node shows to be let in, and its users' certificate."""

    server: str
    authority: str
    token: str = field(repr=False)
    certificate: str
    key: str = field(repr=False)

    @classmethod
    def of(cls, address: str, access: Access, token: str) -> Self:
        return cls(f"https://{address}:{PORT}", access.authority, token, access.certificate, access.key)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**{name: str(fields[name]) for name in cls.__dataclass_fields__})

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    def for_node(self) -> dict[str, Any]:
        """The kubeconfig by which kubeadm finds the cluster, and in which it finds the token."""
        return _kubeconfig("kind", self.server, self.authority, {"token": self.token})

    def for_users(self, name: str, server: str) -> dict[str, Any]:
        """Theirs, for another way to the same server."""
        certificate = {"client-certificate-data": _packed(self.certificate), "client-key-data": _packed(self.key)}
        return _kubeconfig(f"kind-{name}", server, self.authority, certificate)


def _kubeconfig(name: str, server: str, authority: str, user: dict[str, str]) -> dict[str, Any]:
    """YAML holds JSON."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": _packed(authority)}}],
        "users": [{"name": name, "user": user}],
    }


def _packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@dataclass
class Others:
    """By Slurm's names. `attend` deals with what is heard of them, for so many seconds."""

    names: tuple[str, ...] = ()
    invite: Callable[[Invitation], object] = lambda _: None
    attend: Callable[[float], object] = time.sleep
    # Those that are not waited for any more.
    gone: set[str] = field(default_factory=set)

    @property
    def awaited(self) -> set[str]:
        return set(self.names) - self.gone
