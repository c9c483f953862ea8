"""A job's cluster on its first node: kind makes it in the delegated cgroup, from an image that is on the node."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from moorage.common import command, node_image, phases
from moorage.common.command import Child, CommandFailed
from moorage.common.deadline import Deadline
from moorage.common.description import Mooring
from moorage.common.errors import MoorageError, UserError
from moorage.common.events import Watch
from moorage.common.phases import Phase
from moorage.user.cluster import (
    early_services,
    failure,
    kind_config,
    kind_progress,
    kubeconfig,
    node_container,
    node_resources,
    readiness,
)
from moorage.user.cluster.api import Access, Api, Refused
from moorage.user.cluster.invitation import Invitation, JoiningNodes
from moorage.user.cluster.kind_config import Plan
from moorage.user.cluster.kind_progress import CurrentPhase
from moorage.user.cluster.node_container import ADMINISTRATOR
from moorage.user.failure_report import without_secrets
from moorage.user.network import bridge

LOG: Final = "kind.log"
# The administrator's certificate that kubeadm makes, seen from outside by way of the node's first process.
ADMIN: Final = "/proc/{}/root/etc/kubernetes/admin.conf"
BOOTSTRAP: Final = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-{}"
LONGEST_CAUSE: Final = 300
# kind writes its progress into a log, and the kernel sends no event for that: look twice a second.
LOOK_AT_LOG: Final = 0.5


@dataclass(frozen=True)
class Cluster:
    name: str
    server: str


def boot(
    mooring: Mooring,
    cgroup: Path,
    tell: Callable[[Phase, str], object],
    watch: Watch,
    joining: JoiningNodes,
    invite: Callable[[Invitation], object],
) -> Cluster:
    """Start the cluster, until a pod can run; called in the delegated cgroup.

    `tell` is called with each phase, `invite` once, when the nodes that join can do so.
    """
    plan = planned(mooring, cgroup)
    phase = CurrentPhase(tell, mooring.kubernetes.patience)
    start = Start(mooring, cgroup, plan, phase, watch, joining, invite)
    with failure.explained(phase, lambda: failure.collect(start.node, {"kind": start.log})):
        return start.run()


def planned(mooring: Mooring, cgroup: Path) -> Plan:
    """Decide everything; raise a UserError if the site or the user has to do something first."""
    site = mooring.kubernetes
    if not site.image:
        raise UserError(
            "this site has settled on no node image",
            f"{ADMINISTRATOR}: kubernetes.image in moorage.yaml",
            code="M-KUBE-11",
        )
    version = node_image.version(site.image, mooring.spec.version)
    whole = node_resources.machine()
    job = node_resources.of_job(cgroup, whole, os.environ)
    node_resources.check(job, node_resources.Least(site.least_cpus, site.least_memory))
    hardware = mooring.hardware.openable()
    return Plan(
        job=mooring.job,
        image=site.image,
        version=version,
        token=kind_config.bootstrap_token(),
        etcd=site.etcd,
        patience=site.patience,
        reserved=node_resources.reserved(whole, job, site.reserve),
        files=mooring.places.scratch / "kubernetes",
        hardware=hardware,
        name=node_resources.name(mooring.node),
        labels=node_resources.labels(mooring.node, job, os.environ, hardware.given),
        nodes=mooring.nodes,
        pods=site.pods,
        services=site.services,
    )


def write_files(plan: Plan, files: dict[str, dict[str, Any]]) -> None:
    """Write the files that the node reads: these, and the ones that every node has."""
    texts = {name: json.dumps(content) for name, content in files.items()}
    for name, text in (texts | early_services.files(plan.services)).items():
        path = plan.files / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)


@dataclass
class Start:
    """One start of a cluster; `run` has its steps in their order."""

    mooring: Mooring
    cgroup: Path
    plan: Plan
    phase: CurrentPhase
    watch: Watch
    joining: JoiningNodes
    invite: Callable[[Invitation], object]
    # So many characters of kind's log have been looked at.
    _seen: int = field(default=0, init=False)
    _kubeadm_done: bool = field(default=False, init=False)

    @property
    def log(self) -> Path:
        return self.mooring.places.user / LOG

    @property
    def node(self) -> node_container.Container:
        return node_container.Container(self.mooring, kind_config.node(self.plan.job))

    def run(self) -> Cluster:
        self.plan = replace(self.plan, image=node_container.provide(self.node, self.plan.image, self.phase))
        with self._running_kind() as kind:
            self._follow(kind, lambda: self._kubeadm_done)
            # The other nodes join while kind goes on.
            self._invite()
            self._follow(kind)
        self.phase.begin(phases.NODES if self.joining.names else phases.READINESS)
        process = self._first_process()
        self.node.prove(process, self.cgroup)
        node_container.link_kubectl(process, kubeconfig.tools(self.mooring.places))
        access = Access.of(kubeconfig.place(self.mooring.places))
        self._await_ready(access)
        return Cluster(kind_config.name(self.plan.job), access.server)

    @contextmanager
    def _running_kind(self) -> Iterator[Child]:
        """Start kind, and remove its configuration afterwards, because the bootstrap token is in there."""
        self.phase.begin(phases.KIND)
        program = self._program()
        configuration = self.mooring.places.user / "kind.json"
        words = ["create", "cluster", f"--config={configuration}", "--wait=0s", "--retain"]
        words.append(f"--kubeconfig={kubeconfig.place(self.mooring.places)}")
        environment = self._environment()
        try:
            self._write_files(configuration)
            child = Child([program, *words], env=environment, log=self.log)
            with child as kind, self.watch.noticing(kind.descriptor):
                yield kind
        finally:
            configuration.unlink(missing_ok=True)

    def _follow(self, kind: Child, enough: Callable[[], bool] = lambda: False) -> None:
        """Report the phases that kind announces, until there is enough or kind has ended; raise if it has failed."""
        deadline = Deadline(kind_progress.longest(self.plan.patience))
        if not self.watch.until(lambda: enough() or kind.ended, deadline, self._look_at_log, LOOK_AT_LOG):
            raise self.phase.overdue()
        if kind.ended:
            self._report_announced()
            self._check(kind)

    def _look_at_log(self) -> None:
        self._report_announced()
        self.phase.check()

    def _report_announced(self) -> None:
        """Report the phases that kind has announced since the last look."""
        said = self._said()
        end = said.rfind("\n") + 1
        for line in said[self._seen : end].splitlines():
            if phase := kind_progress.announced(line):
                self.phase.begin(phase)
            # kind installs the pod network after kubeadm has made the control plane.
            self._kubeadm_done = self._kubeadm_done or phase == phases.NETWORK
        self._seen = max(self._seen, end)

    def _check(self, kind: Child) -> None:
        try:
            kind.check()
        except CommandFailed as error:
            why = cause(self._said()) or ended(error.status)
            raise MoorageError(f"{self.phase.text} failed: {why}", code="M-KUBE-10") from error

    def _invite(self) -> None:
        """Send the invitation that the other nodes wait for; how they use it is told in other_node."""
        if (segment := self.mooring.fabric) and self.joining.names:
            access = Access.of(Path(ADMIN.format(self._first_process())))
            address = bridge.address(segment, self.mooring.place)
            self.invite(Invitation.of(address, access, self.plan.token))

    def _first_process(self) -> int:
        return self.node.first_process(self.phase.deadline.left)

    def _environment(self) -> dict[str, str]:
        around = node_container.environment(self.mooring) | {"KIND_EXPERIMENTAL_PROVIDER": "podman"}
        place = self.mooring.places.user / "kind"
        place.mkdir(mode=0o700, exist_ok=True)
        node_container.write_wrapper(place / "podman", self.mooring.podman, self._addresses)
        if self.mooring.fabric:
            around["KIND_EXPERIMENTAL_PODMAN_NETWORK"] = bridge.NAME
        return around | {"PATH": f"{place}:{around['PATH']}"}

    @property
    def _addresses(self) -> tuple[str, ...]:
        """kind has no options for a node's addresses, so its podman adds them."""
        segment = self.mooring.fabric
        return bridge.membership(segment, self.mooring.place) if segment else ()

    def _program(self) -> Path:
        """The site's kind: nobody has tested a user's own."""
        named = self.mooring.kubernetes.kind
        found = shutil.which(named or "kind", path=command.PATH)
        if not found:
            raise UserError(
                f"there is no program {named or 'kind'} on this node",
                f"{ADMINISTRATOR}: kubernetes.kind",
                code="M-KUBE-12",
            )
        return Path(found)

    def _write_files(self, configuration: Path) -> None:
        """Write the files that the node reads, and kind's own configuration."""
        write_files(self.plan, kind_config.files(self.plan))
        configuration.touch(mode=0o600)
        configuration.write_text(json.dumps(kind_config.configuration(self.plan)))

    def _said(self) -> str:
        with suppress(FileNotFoundError):
            return self.log.read_text(errors="replace")
        return ""

    def _await_ready(self, access: Access) -> None:
        with Api(access, kind_progress.ANSWER * self.plan.patience) as api:
            deadline = self.phase.deadline
            if missing := readiness.wait(api, deadline, self.phase.detail, self.joining, self.watch):
                missing = self._without_the_late(api)
            if missing:
                raise self.phase.overdue(missing)
            self._remove_token(api)

    def _remove_token(self, api: Api) -> None:
        """Try again until it is done: one failed request is no reason to lose a cluster that took minutes to start.

        There is time for this even if late nodes have used up the phase.
        """
        left = Deadline(max(self.phase.deadline.left, kind_progress.ANSWER * self.plan.patience))
        while True:
            try:
                return api.remove(BOOTSTRAP.format(self.plan.token.partition(".")[0]))
            except (Refused, OSError, HTTPException) as error:
                if left.passed:
                    raise MoorageError(f"the bootstrap token cannot be removed: {error}", code="M-KUBE-13") from error
            self.watch.pause(min(readiness.INTERVAL, left.left))

    def _without_the_late(self, api: Api) -> str:
        """Give up the nodes that are late, if the job does not require them; return what is still missing."""
        if self.mooring.spec.require == "any":
            self.joining.give_up(*readiness.late(api, self.joining))
        return readiness.lacking(api, self.joining)


def cause(said: str) -> str:
    """The line in which kind names the error. It may hold a command with its whole environment, so secrets go."""
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    return without_secrets(errors[-1])[:LONGEST_CAUSE] if errors else ""


def ended(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "kind was killed, as happens where memory is short: ask for more (--mem)"
    return f"kind has ended with {code}"
