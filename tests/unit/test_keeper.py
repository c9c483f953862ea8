"""What a keeper tells of its cluster."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from moorage import cluster
from moorage.channel import Ear
from moorage.cluster import Cluster
from moorage.keeper import Keeper
from moorage.mooring import Mooring
from moorage.others import Others
from moorage.podmanenv import Places
from moorage.watch import Signals, Watch


def test_the_first_node_says_who_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others it is heard in a moment that they have all that is their own."""

    def boot(mooring: Mooring, tree: Path, tell: object, others: Others) -> Cluster:
        others.gone |= {"n3", "n2"}
        return Cluster("moorage-17", "https://127.0.0.1:1")

    monkeypatch.setattr(cluster, "boot", boot)
    fields: dict[str, Any] = {"job": 17, "restart": 0, "node": "n1", "uplink": "pasta", "podman": "/usr/bin/podman"}
    mooring = Mooring.from_dict({**fields, "spec": {"enabled": True, "cluster": "kind"}}, Places(tmp_path))
    agent, ours = socket.socketpair()
    with agent, ours, Watch() as watch, Signals(()) as signals:
        Keeper(mooring, ours, watch, signals)._boot_cluster(tmp_path)
        (said,) = Ear().hear(agent.recv(1 << 16))
    about = {"name": "moorage-17", "server": "https://127.0.0.1:1"}
    assert said == {"event": "cluster", **about, "without": ["n2", "n3"]}
