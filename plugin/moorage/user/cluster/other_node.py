"""A node beside the first: a container like kind's, in which kubeadm joins the cluster once it is invited."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from moorage.common.command import CommandFailed, CommandTimeout, run
from moorage.common.description import Mooring, Segment
from moorage.common.errors import MoorageError
from moorage.linux import mounts
from moorage.user.cluster import (
    failure,
    first_node,
    join_config,
    kind_config,
    kind_progress,
    kubeconfig,
    node_container,
)
from moorage.user.cluster.first_node import LONGEST_CAUSE
from moorage.user.cluster.invitation import PORT, Invitation
from moorage.user.cluster.kind_config import Plan
from moorage.user.cluster.kind_progress import Course, Phase
from moorage.user.failure_report import without_secrets
from moorage.user.network.bridge import address
from moorage.user.network.holder_client import Hold

LOG: Final = "kubeadm.log"
INVITED: Final = "waiting for the first node's control plane"
RUNTIME: Final = "run/containerd/containerd.sock"
LOOKING: Final = 0.2


@dataclass(frozen=True)
class Link:
    """To the first node: `invited` is its invitation, as soon as it has come; `attend` deals with what is heard."""

    attend: Callable[[float], object]
    invited: Callable[[], Invitation | None]


def join(mooring: Mooring, segment: Segment, tree: Path, tell: Callable[[str], object], link: Link, hold: Hold) -> None:
    """Make this node one of the cluster's, and give its users here their way in; called in the tree."""
    plan = first_node.planned(mooring, tree)
    joins = Join(mooring, segment, tree, plan, Course(tell, mooring.kubernetes.patience), link, hold)
    with failure.explained(joins.course, lambda: failure.collect(joins.node, {"kubeadm": joins.log})):
        joins.run()


@dataclass
class Join:
    """One joining, in the order of what is done."""

    mooring: Mooring
    segment: Segment
    tree: Path
    plan: Plan
    course: Course
    link: Link
    hold: Hold

    @property
    def log(self) -> Path:
        return self.mooring.places.user / LOG

    @property
    def node(self) -> node_container.Container:
        return node_container.Container(self.mooring, kind_config.node(self.plan.job, self.mooring.place))

    def run(self) -> None:
        self.plan = replace(self.plan, image=node_container.provide(self.node, self.plan.image, self.course))
        process = self._create()
        invitation = self._await_invitation(process)
        self._join(process, invitation)
        node_container.link_kubectl(process, kubeconfig.tools(self.mooring.places))
        port = self.hold.forward(address(self.segment, 0), PORT, process)
        users = invitation.for_users(kind_config.name(self.plan.job), f"https://127.0.0.1:{port}")
        kubeconfig.write(self.mooring.places, users)

    def _create(self) -> int:
        """Its first process, once its container runtime runs with our settings."""
        self.course.begin(kind_progress.CREATING)
        first_node.write_files(self.plan, join_config.files(self.plan))
        label = f"--label={self.node.name}=true"
        volume = self._podman("volume", "create", label).strip()
        environ = node_container.environment(self.mooring)
        lies_on = mounts.holding(self.mooring.places.scratch, mounts.table()).kind
        self._podman(*join_config.container(self.plan, self.segment, self.mooring.place, volume, environ, lies_on))
        process = self.node.first_process(self.course.deadline.left)
        self.node.prove(process, self.tree)
        while not _inside(process, RUNTIME).exists():
            self._wait(process)
        configuration = _inside(process, join_config.CONTAINERD)
        configuration.write_text(join_config.containerd(configuration.read_text()))
        self._podman("exec", "--privileged", self.node.name, "systemctl", "restart", "containerd")
        return process

    def _await_invitation(self, process: int) -> Invitation:
        self.course.begin(Phase(INVITED, kind_progress.first(1.0)))
        while not (invitation := self.link.invited()):
            self._wait(process)
        return invitation

    def _join(self, process: int, invitation: Invitation) -> None:
        self.course.begin(kind_progress.JOINING)
        configuration = join_config.configuration(self.plan, self.segment, self.mooring.place)
        discovery = _inside(process, join_config.DISCOVERY)
        try:
            _write(_inside(process, join_config.CONFIGURATION), configuration)
            _write(discovery, invitation.for_node())
            self._run_kubeadm("join", f"--config=/{join_config.CONFIGURATION}", "--v=5")
        finally:
            # The token is in there.
            discovery.unlink(missing_ok=True)

    def _run_kubeadm(self, *words: str) -> None:
        """What it says may be long, and comes along if it fails."""
        argv: list[str | Path] = [self.mooring.podman, "exec", "--privileged", self.node.name, "kubeadm", *words]
        environment, limit = node_container.environment(self.mooring), self.course.deadline.left
        try:
            run(argv, env=environment, cwd=Path("/"), log=self.log, limit=limit, watch=self._attend)
        except CommandTimeout:
            raise
        except CommandFailed as error:
            why = cause(self.log.read_text(errors="replace")) or f"kubeadm has ended with {error.code}"
            raise MoorageError(f"{self.course.phase.text} failed: {why}") from error

    def _podman(self, *words: str) -> str:
        return self.node.podman(*words, limit=self.course.deadline.left).stdout

    def _wait(self, process: int) -> None:
        """A moment, as long as it makes sense."""
        self.course.check()
        if not Path(f"/proc/{process}").exists():
            raise MoorageError(f"the node container {self.node.name} has ended")
        self.link.attend(LOOKING)

    def _attend(self) -> None:
        self.link.attend(0)


def cause(said: str) -> str:
    """The line in which kubeadm says what was wrong."""
    errors = [line for line in said.splitlines() if line.startswith(("error: ", "error execution phase"))]
    return without_secrets(errors[-1]).removeprefix("error: ")[:LONGEST_CAUSE] if errors else ""


def _inside(process: int, place: str) -> Path:
    """A file of the container's, which belongs to the user: the kernel lets him pass by way of its first process."""
    return Path(f"/proc/{process}/root") / place


def _write(path: Path, content: dict[str, Any]) -> None:
    path.touch(mode=0o600)
    path.write_text(json.dumps(content))
