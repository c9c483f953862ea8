"""A job's cluster on one node: kind makes it in the job's tree, from an image that is there; nothing is fetched."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Final

from moorage import command, container, evidence, kind, kubeconfig, phases, readiness, share
from moorage.api import Access, Api
from moorage.bundle import without_secrets
from moorage.command import CommandFailed, CommandTimeout, Completed
from moorage.errors import MoorageError, UserError
from moorage.kind import Plan
from moorage.mooring import Mooring
from moorage.phases import Course

LOG: Final = "kind.log"
BOOTSTRAP: Final = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-{}"
LONGEST_CAUSE: Final = 300
ADMINISTRATOR: Final = "tell the administrator of this node"


class Failed(MoorageError):
    """The cluster did not come up; `logs` are by their titles."""

    def __init__(self, cause: str, logs: Mapping[str, str]) -> None:
        super().__init__(cause)
        self.logs = logs


@dataclass(frozen=True)
class Cluster:
    name: str
    server: str


def boot(mooring: Mooring, tree: Path, tell: Callable[[str], object]) -> Cluster:
    """Bring it up, to where a pod can be run; called in the tree. `tell` is called with each phase."""
    plan = planned(mooring, tree)
    start = Start(mooring, tree, plan, Course(tell, mooring.kubernetes.patience))
    try:
        return start.run()
    except UserError:
        raise
    except CommandTimeout as error:
        raise start.failed(start.course.overdue()) from error
    except MoorageError as error:
        raise start.failed(error) from error
    except OSError as error:
        raise start.failed(f"{start.course.phase.text} failed: {error.strerror}") from error


def planned(mooring: Mooring, tree: Path) -> Plan:
    """All decisions; a UserError where the site or the user has to do something first."""
    site = mooring.kubernetes
    if not site.image:
        raise UserError("this site has settled on no node image", f"{ADMINISTRATOR}: kubernetes.image in moorage.yaml")
    version = kind.version(site.image, mooring.spec.version)
    whole = share.machine()
    job = share.of_job(tree, whole, os.environ)
    share.check(job, share.Least(site.least_cpus, site.least_memory))
    return Plan(
        job=mooring.job,
        image=site.image,
        version=version,
        token=kind.bootstrap_token(),
        etcd=site.etcd,
        patience=site.patience,
        reserved=share.reserved(whole, job, site.reserve),
        files=mooring.places.scratch / "kubernetes",
        hardware=mooring.hardware.openable(),
    )


@dataclass
class Start:
    """One start of a cluster, in the order of what is done."""

    mooring: Mooring
    tree: Path
    plan: Plan
    course: Course
    _heard: int = field(default=0, init=False)

    @property
    def log(self) -> Path:
        return self.mooring.places.user / LOG

    @property
    def node(self) -> container.Container:
        return container.Container(self.mooring, kind.node(self.plan.job))

    def failed(self, cause: object) -> Failed:
        return Failed(str(cause), evidence.collect(self.node, self.log))

    def run(self) -> Cluster:
        self._provide_image()
        self._create()
        self.course.begin(phases.READYING)
        process = self.node.first_process(self.course.deadline.left)
        if container.astray(process, self.tree):
            raise MoorageError(f"the node container is not in a cgroup of its own below {self.tree}")
        container.link_kubectl(process, kubeconfig.tools(self.mooring.places))
        access = Access.of(kubeconfig.place(self.mooring.places))
        self._await_ready(access)
        return Cluster(kind.name(self.plan.job), access.server)

    def _provide_image(self) -> None:
        """In the job's own storage or in a store that it sees; else out of an archive, which takes its time."""
        image, archive = self.plan.image, self.mooring.kubernetes.archive
        if self._has_image():
            return
        if not archive:
            raise UserError(f"there is no image {image} on this node", f"{ADMINISTRATOR}: `moorage image add`")
        self.course.begin(phases.LOADING)
        self._podman("load", "--quiet", f"--input={archive}")
        if not self._has_image():
            raise UserError(f"there is no image {image} in {archive}", f"{ADMINISTRATOR}: kubernetes.image")

    def _has_image(self) -> bool:
        return self._podman("image", "exists", self.plan.image, ok=(0, 1)).code == 0

    def _podman(self, *words: str, ok: Container[int] = (0,)) -> Completed:
        return self.node.podman(*words, limit=self.course.deadline.left, ok=ok)

    def _create(self) -> None:
        self.course.begin(phases.STARTING)
        program = self._program()
        configuration = self.mooring.places.user / "kind.json"
        words = ["create", "cluster", f"--config={configuration}", "--wait=0s", "--retain"]
        words.append(f"--kubeconfig={kubeconfig.place(self.mooring.places)}")
        environment = container.environment(self.mooring) | {"KIND_EXPERIMENTAL_PROVIDER": "podman"}
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

    def _program(self) -> Path:
        """The site's kind; a user's own is nothing that anybody has tried."""
        named = self.mooring.kubernetes.kind
        found = shutil.which(named or "kind", path=command.PATH)
        if not found:
            raise UserError(f"there is no program {named or 'kind'} on this node", f"{ADMINISTRATOR}: kubernetes.kind")
        return Path(found)

    def _write_files(self, configuration: Path) -> None:
        """What the node reads, and kind's own configuration."""
        for name, content in kind.files(self.plan).items():
            path = self.plan.files / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(json.dumps(content))
        configuration.touch(mode=0o600)
        configuration.write_text(json.dumps(kind.configuration(self.plan)))

    def _follow(self) -> None:
        self._hear()
        self.course.check()

    def _hear(self) -> None:
        """Tell of the phases that kind has begun since the last time."""
        said = self._said()
        end = said.rfind("\n") + 1
        for line in said[self._heard : end].splitlines():
            if phase := phases.begun(line):
                self.course.begin(phase)
        self._heard = max(self._heard, end)

    def _said(self) -> str:
        with suppress(FileNotFoundError):
            return self.log.read_text(errors="replace")
        return ""

    def _await_ready(self, access: Access) -> None:
        with Api(access, phases.ANSWER * self.plan.patience) as api:
            if missing := readiness.wait(api, self.course.deadline, self.course.detail):
                raise self.course.overdue(missing)
            try:
                api.remove(BOOTSTRAP.format(self.plan.token.partition(".")[0]))
            except (OSError, HTTPException) as error:
                raise MoorageError(f"the bootstrap token cannot be removed: {error}") from error


def cause(said: str) -> str:
    """The line in which kind says what was wrong; it may hold a command with all of its environment."""
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    return without_secrets(errors[-1])[:LONGEST_CAUSE] if errors else ""


def ended(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "kind was killed, as happens where memory is short: ask for more (--mem)"
    return f"kind has ended with {code}"
