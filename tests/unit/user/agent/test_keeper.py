"""What a keeper tells of its cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from moorage.common.description import Mooring
from moorage.common.events import Signals, Watch
from moorage.common.podman import Places
from moorage.user.agent.keeper import Keeper
from moorage.user.channel import Ear
from moorage.user.cluster import first_node
from moorage.user.cluster.first_node import Cluster
from moorage.user.cluster.invitation import Others
from support.described import described


def test_the_first_node_says_who_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others it is heard in a moment that they have all that is their own."""

    def boot(mooring: Mooring, tree: Path, tell: object, others: Others) -> Cluster:
        others.gone |= {"n3", "n2"}
        return Cluster("moorage-17", "https://127.0.0.1:1")

    monkeypatch.setattr(first_node, "boot", boot)
    mooring = Mooring.from_dict(described(spec={"cluster": "kind"}), Places(tmp_path))
    agent, ours = socket.socketpair()
    with agent, ours, Watch() as watch, Signals(()) as signals:
        Keeper(mooring, ours, watch, signals)._boot_cluster(tmp_path)
        (said,) = Ear().hear(agent.recv(1 << 16))
    about = {"name": "moorage-17", "server": "https://127.0.0.1:1"}
    assert said == {"event": "cluster", **about, "without": ["n2", "n3"]}
