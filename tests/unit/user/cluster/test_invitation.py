"""What the first node lets the others know: enough to join, and nothing that shows itself."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from moorage.user.cluster.api import Access
from moorage.user.cluster.invitation import Invitation

ACCESS = Access("https://127.0.0.1:41234", "the authority", "a certificate", "a key")
INVITATION = Invitation.of("10.89.0.2", ACCESS, "a1b2c3.a1b2c3d4e5f6g7h8")


@pytest.mark.parametrize("secret", ["a key", "a1b2c3"])
def test_it_does_not_show_what_nobody_should_see(secret: str) -> None:
    assert secret not in repr(INVITATION)


def test_a_node_asks_at_the_address_that_all_know_and_shows_the_token() -> None:
    content = INVITATION.for_node()
    (cluster,), (user,) = content["clusters"], content["users"]
    assert cluster["cluster"]["server"] == "https://10.89.0.2:6443"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"the authority"
    assert user["user"] == {"token": "a1b2c3.a1b2c3d4e5f6g7h8"}
    (context,) = content["contexts"]
    assert content["current-context"] == context["name"]
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}


def test_users_get_in_by_their_own_node(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(json.dumps(INVITATION.for_users("moorage-17", "https://127.0.0.1:40000")))
    found = Access.of(tmp_path / "kubeconfig")
    assert found == Access("https://127.0.0.1:40000", ACCESS.authority, ACCESS.certificate, ACCESS.key)
    assert "a1b2c3" not in (tmp_path / "kubeconfig").read_text()
