"""What the first node of a cluster tells the other nodes, so that they can join and give users access to its API."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from moorage.user.cluster.api import Access

PORT: Final = 6443


@dataclass(frozen=True)
class Invitation:
    """The API's URL and certificate authority, the bootstrap token for a node, and the certificate for users."""

    server: str
    authority: str
    token: str = field(repr=False)
    certificate: str
    key: str = field(repr=False)

    @classmethod
    def of(cls, address: str, access: Access, token: str) -> Self:
        return cls(f"https://{address}:{PORT}", access.authority, token, access.certificate, access.key)

    @classmethod
    def fits(cls, fields: Mapping[str, Any]) -> bool:
        """Whether an invitation has these fields."""
        return fields.keys() == cls.__dataclass_fields__.keys() and all(isinstance(one, str) for one in fields.values())

    def for_node(self) -> dict[str, Any]:
        """The kubeconfig in which kubeadm finds the cluster and the token."""
        return _kubeconfig("kind", self.server, self.authority, {"token": self.token})

    def for_users(self, name: str, server: str) -> dict[str, Any]:
        """The kubeconfig of users, who reach the API at this server."""
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


class JoiningNodes:
    """The nodes that join the first node's cluster, by Slurm's names."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(names)
        self._given_up: set[str] = set()

    @property
    def given_up(self) -> frozenset[str]:
        """The nodes that the cluster does not wait for any more."""
        return frozenset(self._given_up)

    @property
    def awaited(self) -> frozenset[str]:
        return frozenset(self.names) - self._given_up

    def give_up(self, *names: str) -> None:
        self._given_up.update(names)
