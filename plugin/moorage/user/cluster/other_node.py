"""A second node joins the cluster; a third one does the same. The sequence, with the node that takes each step:

1. both nodes   The Prologs make the fabric. The agents and keepers start, and the wardens plug the fabric.
2. first node   `first_node.Start.run` has kind make the control plane.
   second node  Meanwhile `Join.run` creates the node container and waits for an invitation.
3. first node   As soon as kubeadm is done, `Start._invite` has the keeper send the event `Invited`: the API's address
                and certificate authority, a bootstrap token, and a certificate for users.
4. first node   The agent passes it on to `moorage run`, which sends the command `Join` to the agents of all nodes.
5. second node  The agent passes `Join` on to the keeper, which keeps the invitation, and `Join.run` goes on: kubeadm
                joins the cluster with the token.
6. first node   `readiness.wait` sees in the API that the second node is Ready. `Start.run` removes the token, and the
                keeper sends `ClusterUp` and `Ready`.
7. second node  `Join.run` gives the users of this node a kubeconfig, by a port of the node's loopback that the holder
                forwards to the API. The keeper sends `Ready`.
8. first node   `moorage run` has heard `Ready` from all nodes that the job requires, and starts the script.

If the second node fails, `moorage run` sends the command `Without` to all agents. The first node's keeper then gives
the node up (`JoiningNodes`), so that the cluster does not wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from moorage.common import phases
from moorage.common.command import Child, CommandFailed
from moorage.common.description import Mooring, Segment
from moorage.common.errors import MoorageError
from moorage.common.events import Watch
from moorage.common.phases import Phase
from moorage.linux import mounts
from moorage.user.cluster import (
    failure,
    first_node,
    join_config,
    kind_config,
    kubeconfig,
    node_container,
)
from moorage.user.cluster.first_node import LONGEST_CAUSE
from moorage.user.cluster.invitation import PORT, Invitation
from moorage.user.cluster.kind_config import Plan
from moorage.user.cluster.kind_progress import CurrentPhase
from moorage.user.failure_report import without_secrets
from moorage.user.network.bridge import address
from moorage.user.network.holder_client import HolderClient

LOG: Final = "kubeadm.log"
RUNTIME: Final = "run/containerd/containerd.sock"
# A file and a process in the container are looked at so often.
LOOK: Final = 0.2


def join(
    mooring: Mooring,
    cgroup: Path,
    tell: Callable[[Phase, str], object],
    watch: Watch,
    network: Network,
    invitation: Callable[[], Invitation | None],
) -> None:
    """Make this node part of the cluster; called in the delegated cgroup. `tell` is called with each phase.

    `invitation` returns the first node's invitation once that has arrived.
    """
    plan = first_node.planned(mooring, cgroup)
    joining = Join(mooring, cgroup, plan, CurrentPhase(tell, mooring.kubernetes.patience), watch, network)
    with failure.explained(joining.phase, lambda: failure.collect(joining.node, {"kubeadm": joining.log})):
        joining.run(invitation)


@dataclass(frozen=True)
class Network:
    """The network between the nodes, and the holder of this node's part of it."""

    segment: Segment
    holder: HolderClient


@dataclass
class Join:
    """One node's joining; `run` has its steps in their order."""

    mooring: Mooring
    cgroup: Path
    plan: Plan
    phase: CurrentPhase
    watch: Watch
    network: Network

    @property
    def log(self) -> Path:
        return self.mooring.places.user / LOG

    @property
    def node(self) -> node_container.Container:
        return node_container.Container(self.mooring, kind_config.node(self.plan.job, self.mooring.place))

    def run(self, invitation: Callable[[], Invitation | None]) -> None:
        self.plan = replace(self.plan, image=node_container.provide(self.node, self.plan.image, self.phase))
        self.phase.begin(phases.CONTAINER)
        process = self._create_container()
        self._configure_runtime(process)
        self.phase.begin(phases.INVITATION)
        received = self._await_invitation(process, invitation)
        self.phase.begin(phases.JOIN)
        self._join(process, received)
        self._give_access(process, received)

    def _create_container(self) -> int:
        """Create the node container; return its first process."""
        first_node.write_files(self.plan, join_config.files(self.plan))
        label = f"--label={self.node.name}=true"
        volume = self._podman("volume", "create", label).strip()
        environ = node_container.environment(self.mooring)
        lies_on = mounts.holding(self.mooring.places.scratch, mounts.table()).kind
        segment, place = self.network.segment, self.mooring.place
        self._podman(*join_config.container(self.plan, segment, place, volume, environ, lies_on))
        process = self.node.first_process(self.phase.deadline.left)
        self.node.prove(process, self.cgroup)
        return process

    def _configure_runtime(self, process: int) -> None:
        """Add our settings to containerd's, once the container has written its own."""
        self._wait(process, lambda: _inside(process, RUNTIME).exists())
        configuration = _inside(process, join_config.CONTAINERD)
        configuration.write_text(join_config.containerd(configuration.read_text()))
        self._podman("exec", "--privileged", self.node.name, "systemctl", "restart", "containerd")

    def _await_invitation(self, process: int, invitation: Callable[[], Invitation | None]) -> Invitation:
        while not (received := invitation()):
            self._wait(process, lambda: invitation() is not None)
        return received

    def _join(self, process: int, invitation: Invitation) -> None:
        segment, place = self.network.segment, self.mooring.place
        configuration = join_config.configuration(self.plan, segment, place)
        discovery = _inside(process, join_config.DISCOVERY)
        try:
            _write(_inside(process, join_config.CONFIGURATION), configuration)
            _write(discovery, invitation.for_node())
            self._run_kubeadm("join", f"--config=/{join_config.CONFIGURATION}", "--v=5")
        finally:
            # The token is in there.
            discovery.unlink(missing_ok=True)

    def _run_kubeadm(self, *words: str) -> None:
        """Run kubeadm in the container; its log is part of the report if it fails."""
        argv: list[str | Path] = [self.mooring.podman, "exec", "--privileged", self.node.name, "kubeadm", *words]
        child = Child(argv, env=node_container.environment(self.mooring), log=self.log, cwd=Path("/"))
        with child as kubeadm, self.watch.noticing(kubeadm.descriptor):
            if not self.watch.until(lambda: kubeadm.ended, self.phase.deadline):
                raise self.phase.overdue()
            try:
                kubeadm.check()
            except CommandFailed as error:
                why = cause(self.log.read_text(errors="replace")) or f"kubeadm has ended with {error.status}"
                raise MoorageError(f"{self.phase.text} failed: {why}", code="M-KUBE-10") from error

    def _give_access(self, process: int, invitation: Invitation) -> None:
        """Give this node's users kubectl, and a kubeconfig that reaches the API by a port of this node."""
        node_container.link_kubectl(process, kubeconfig.tools(self.mooring.places))
        port = self.network.holder.forward(address(self.network.segment, 0), PORT, process)
        users = invitation.for_users(kind_config.name(self.plan.job), f"https://127.0.0.1:{port}")
        kubeconfig.write(self.mooring.places, users)

    def _podman(self, *words: str) -> str:
        return self.node.podman(*words, limit=self.phase.deadline.left).stdout

    def _wait(self, process: int, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; raise if the phase takes too long, or the container has ended."""

        def check() -> None:
            if not Path(f"/proc/{process}").exists():
                raise MoorageError(f"the node container {self.node.name} has ended", code="M-KUBE-22")

        if not self.watch.until(condition, self.phase.deadline, check, LOOK):
            raise self.phase.overdue()


def cause(said: str) -> str:
    """The line in which kubeadm names the error."""
    errors = [line for line in said.splitlines() if line.startswith(("error: ", "error execution phase"))]
    return without_secrets(errors[-1]).removeprefix("error: ")[:LONGEST_CAUSE] if errors else ""


def _inside(process: int, place: str) -> Path:
    """A file of the container. The user owns the container, so the kernel allows access through its first process."""
    return Path(f"/proc/{process}/root") / place


def _write(path: Path, content: dict[str, Any]) -> None:
    path.touch(mode=0o600)
    path.write_text(json.dumps(content))
