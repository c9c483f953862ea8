"""What a keeper tells of its cluster."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.common import phases
from moorage.common.description import Mooring
from moorage.common.events import Signals, Watch
from moorage.common.phases import Phase
from moorage.common.podman import Places
from moorage.user import messages
from moorage.user.agent.keeper import Keeper
from moorage.user.channel import Receiver
from moorage.user.cluster import first_node
from moorage.user.cluster.api import Access
from moorage.user.cluster.first_node import Cluster
from moorage.user.cluster.invitation import Invitation, JoiningNodes
from moorage.user.messages import ClusterUp, Invited, PhaseBegun
from support.described import described

INVITATION = Invitation.of("10.89.0.2", Access("", "the authority", "a certificate", "a key"), "a token")


def test_the_first_node_tells_of_its_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the nodes that are not in the cluster; the others soon report themselves that they are ready."""

    def boot(
        mooring: Mooring,
        cgroup: Path,
        tell: Callable[[Phase, str], object],
        watch: Watch,
        joining: JoiningNodes,
        invite: Callable[[Invitation], object],
    ) -> Cluster:
        tell(phases.NODES, "waiting until all nodes are ready: n2 has not joined")
        invite(INVITATION)
        joining.give_up("n3", "n2")
        return Cluster("moorage-17", "https://127.0.0.1:1")

    monkeypatch.setattr(first_node, "boot", boot)
    mooring = Mooring.from_dict(described(spec={"cluster": "kind"}), Places(tmp_path))
    agent, ours = socket.socketpair()
    with agent, ours, Watch() as watch, Signals(()) as signals:
        Keeper(mooring, ours, watch, signals)._start_cluster(tmp_path)
        received = Receiver().receive(agent.recv(1 << 16))
        said = [messages.decode_event(one) for one in received if isinstance(one, dict)]
    assert said == [
        PhaseBegun("nodes", "waiting until all nodes are ready: n2 has not joined"),
        Invited(INVITATION),
        ClusterUp("moorage-17", "https://127.0.0.1:1", ("n2", "n3")),
    ]
