"""A job's cluster on its first node: kind makes it in the job's tree, from an image that is there."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from moorage import (
    bridge,
    command,
    container,
    early_services,
    evidence,
    failure,
    kind,
    kubeconfig,
    nodeimage,
    phases,
    readiness,
    registration,
    share,
)
from moorage.api import Access, Api, Refused
from moorage.bundle import without_secrets
from moorage.command import CommandFailed, CommandTimeout
from moorage.deadline import Deadline
from moorage.errors import MoorageError, UserError
from moorage.invitation import Invitation
from moorage.kind import Plan
from moorage.mooring import Mooring
from moorage.nodeimage import ADMINISTRATOR
from moorage.others import Others
from moorage.phases import Course

LOG: Final = "kind.log"
# Where kubeadm leaves an administrator's certificate, seen from the first process of the node.
ADMIN: Final = "/proc/{}/root/etc/kubernetes/admin.conf"
BOOTSTRAP: Final = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-{}"
LONGEST_CAUSE: Final = 300


@dataclass(frozen=True)
class Cluster:
    name: str
    server: str


def boot(mooring: Mooring, tree: Path, tell: Callable[[str], object], others: Others | None = None) -> Cluster:
    """Bring it up, to where a pod can be run; called in the tree. `tell` is called with each phase."""
    plan = planned(mooring, tree)
    start = Start(mooring, tree, plan, Course(tell, mooring.kubernetes.patience), others or Others())
    with failure.explained(start.course, lambda: evidence.collect(start.node, {"kind": start.log})):
        return start.run()


def planned(mooring: Mooring, tree: Path) -> Plan:
    """All decisions; a UserError where the site or the user has to do something first."""
    site = mooring.kubernetes
    if not site.image:
        raise UserError("this site has settled on no node image", f"{ADMINISTRATOR}: kubernetes.image in moorage.yaml")
    version = kind.version(site.image, mooring.spec.version)
    whole = share.machine()
    job = share.of_job(tree, whole, os.environ)
    share.check(job, share.Least(site.least_cpus, site.least_memory))
    hardware = mooring.hardware.openable()
    return Plan(
        job=mooring.job,
        image=site.image,
        version=version,
        token=kind.bootstrap_token(),
        etcd=site.etcd,
        patience=site.patience,
        reserved=share.reserved(whole, job, site.reserve),
        files=mooring.places.scratch / "kubernetes",
        hardware=hardware,
        name=registration.name(mooring.node),
        labels=registration.labels(mooring.node, job, os.environ, hardware.given),
        nodes=mooring.nodes,
        pods=site.pods,
        services=site.services,
    )


def write_files(plan: Plan, files: dict[str, dict[str, Any]]) -> None:
    """What the node reads: these, and what every node has."""
    texts = {name: json.dumps(content) for name, content in files.items()}
    for name, text in (texts | early_services.files(plan.services)).items():
        path = plan.files / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)


@dataclass
class Start:
    """One start of a cluster, in the order of what is done."""

    mooring: Mooring
    tree: Path
    plan: Plan
    course: Course
    others: Others
    _heard: int = field(default=0, init=False)
    _invited: bool = field(default=False, init=False)

    @property
    def log(self) -> Path:
        return self.mooring.places.user / LOG

    @property
    def node(self) -> container.Container:
        return container.Container(self.mooring, kind.node(self.plan.job))

    def run(self) -> Cluster:
        self.plan = replace(self.plan, image=nodeimage.provide(self.node, self.plan.image, self.course))
        self._create()
        self.course.begin(phases.GATHERING if self.others.names else phases.READYING)
        process = self.node.first_process(self.course.deadline.left)
        self.node.prove(process, self.tree)
        container.link_kubectl(process, kubeconfig.tools(self.mooring.places))
        access = Access.of(kubeconfig.place(self.mooring.places))
        self._await_ready(access)
        return Cluster(kind.name(self.plan.job), access.server)

    def _create(self) -> None:
        self.course.begin(phases.STARTING)
        program = self._program()
        configuration = self.mooring.places.user / "kind.json"
        words = ["create", "cluster", f"--config={configuration}", "--wait=0s", "--retain"]
        words.append(f"--kubeconfig={kubeconfig.place(self.mooring.places)}")
        environment = self._environment()
        limit = phases.longest(self.plan.patience)
        try:
            self._write_files(configuration)
            command.run([program, *words], env=environment, log=self.log, limit=limit, watch=self._follow)
            self._hear()
        except CommandTimeout:
            raise
        except CommandFailed as error:
            self._hear()
            why = cause(self._said()) or ended(error.code)
            raise MoorageError(f"{self.course.phase.text} failed: {why}") from error
        finally:
            # The token is in there, if only a part of it.
            configuration.unlink(missing_ok=True)

    def _environment(self) -> dict[str, str]:
        around = container.environment(self.mooring) | {"KIND_EXPERIMENTAL_PROVIDER": "podman"}
        place = self.mooring.places.user / "kind"
        place.mkdir(mode=0o700, exist_ok=True)
        container.write_wrapper(place / "podman", self.mooring.podman, self._membership)
        if self.mooring.fabric:
            around["KIND_EXPERIMENTAL_PODMAN_NETWORK"] = bridge.NAME
        return around | {"PATH": f"{place}:{around['PATH']}"}

    @property
    def _membership(self) -> tuple[str, ...]:
        """kind has no words for a node's addresses: they are put in where it calls Podman."""
        segment = self.mooring.fabric
        return bridge.membership(segment, self.mooring.place) if segment else ()

    def _program(self) -> Path:
        """The site's kind; a user's own is nothing that anybody has tried."""
        named = self.mooring.kubernetes.kind
        found = shutil.which(named or "kind", path=command.PATH)
        if not found:
            raise UserError(f"there is no program {named or 'kind'} on this node", f"{ADMINISTRATOR}: kubernetes.kind")
        return Path(found)

    def _write_files(self, configuration: Path) -> None:
        """What the node reads, and kind's own configuration."""
        write_files(self.plan, kind.files(self.plan))
        configuration.touch(mode=0o600)
        configuration.write_text(json.dumps(kind.configuration(self.plan)))

    def _follow(self) -> None:
        self._hear()
        if self.others.names:
            self.others.attend(0)
        self.course.check()

    def _hear(self) -> None:
        """Tell of the phases that kind has begun since the last time."""
        said = self._said()
        end = said.rfind("\n") + 1
        for line in said[self._heard : end].splitlines():
            if phase := phases.begun(line):
                self.course.begin(phase)
            if phase == phases.OF_KIND[phases.NETWORK]:
                self._invite()
        self._heard = max(self._heard, end)

    def _invite(self) -> None:
        """kubeadm is done: the others can join while kind goes on."""
        if (segment := self.mooring.fabric) and self.others.names and not self._invited:
            self._invited = True
            process = self.node.first_process(self.course.deadline.left)
            access = Access.of(Path(ADMIN.format(process)))
            address = bridge.address(segment, self.mooring.place)
            self.others.invite(Invitation.of(address, access, self.plan.token))

    def _said(self) -> str:
        with suppress(FileNotFoundError):
            return self.log.read_text(errors="replace")
        return ""

    def _await_ready(self, access: Access) -> None:
        with Api(access, phases.ANSWER * self.plan.patience) as api:
            if missing := readiness.wait(api, self.course.deadline, self.course.detail, self.others):
                missing = self._without_the_late(api)
            if missing:
                raise self.course.overdue(missing)
            self._remove_token(api)

    def _remove_token(self, api: Api) -> None:
        """As often as it takes: minutes of work are not lost for one answer. Who was late has used up the phase."""
        left = Deadline(max(self.course.deadline.left, phases.ANSWER * self.plan.patience))
        while True:
            try:
                return api.remove(BOOTSTRAP.format(self.plan.token.partition(".")[0]))
            except (Refused, OSError, HTTPException) as error:
                if left.passed:
                    raise MoorageError(f"the bootstrap token cannot be removed: {error}") from error
            self.others.attend(min(readiness.INTERVAL, left.left))

    def _without_the_late(self, api: Api) -> str:
        """What is missing of those who are there, if that will do."""
        if self.mooring.spec.require == "any":
            self.others.gone |= readiness.late(api, self.others)
        return readiness.lacking(api, self.others)


def cause(said: str) -> str:
    """The line in which kind says what was wrong; it may hold a command with all of its environment."""
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    return without_secrets(errors[-1])[:LONGEST_CAUSE] if errors else ""


def ended(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "kind was killed, as happens where memory is short: ask for more (--mem)"
    return f"kind has ended with {code}"
