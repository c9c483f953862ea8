"""What root does on a node before a job with --k8s may start there."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from moorage import (
    checks,
    course,
    features,
    files,
    fleet,
    journal,
    lock,
    podman,
    policy,
    programs,
    record,
    rundir,
    scratch,
    slurmconf,
    subids,
    systemd,
    uplink,
)
from moorage import config as configuration
from moorage.checks import Surroundings
from moorage.command import run
from moorage.config import Config, Policy
from moorage.deadline import Deadline
from moorage.errors import MoorageError, Taken, UsageError, UserError, no_room
from moorage.facts import Facts, remembered
from moorage.features import Outfit
from moorage.finding import Finding
from moorage.fleet import Fleet
from moorage.hardware import Hardware
from moorage.job import Job
from moorage.mooring import Segment, WayOut
from moorage.net import names
from moorage.node import Node
from moorage.option import HOOK
from moorage.process import Process
from moorage.record import Ending
from moorage.spec import Spec, parse
from moorage.state import About, Limits, State

if TYPE_CHECKING:
    from moorage.net.fabric import Fabric
    from moorage.net.gateway import Gateway

PHASE: Final = "prolog"
# Those that the job itself has to keep.
WAITS: Final = ("agents", "podman", "kill")
# Of these each job has one at most.
IMAGES: Final = ("image", "further_images")
REGISTRIES: Final = "/etc/containers/registries.conf"
# slurmd drains the node for every other code.
GOES_ON: Final = 0
DRAINS: Final = 1


class Refused(MoorageError):
    """The job cannot be served here."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__(str(findings[0]))
        self.findings = findings


@dataclass
class Known:
    """What is known so far, and decides what a failure leads to."""

    config: Config = field(default_factory=Config)
    shim: bool = False
    job: Job | None = None
    spec: Spec | None = None


@dataclass(frozen=True)
class Plan:
    """All that was found out and decided before anything is made."""

    job: Job
    spec: Spec
    config: Config
    around: Surroundings
    uplink: uplink.Choice
    granted: Mapping[str, list[subids.Range]]
    # That of its cluster, where it has one and the site has settled on any.
    image: str | None = None
    outfit: Outfit = field(default_factory=Outfit)
    fleet: Fleet = field(default_factory=lambda: Fleet(()))
    fabric: Fabric | None = None
    gateway: Gateway | None = None

    @property
    def tools(self) -> podman.Tools:
        runtime = programs.runtime(self.around.programs)
        if runtime is None:
            raise MoorageError("there is no container runtime, though the checks found no fault")
        return podman.Tools(
            podman=self.around.programs["podman"].path,
            runtime=runtime.path,
            driver=self.uplink.driver,
            registries=Node().text(REGISTRIES) or None,
            resolvers=uplink.resolvers(Node(), self.config.uplink) if self.uplink.driver == uplink.KERNEL else (),
            pasta=pasta.path if (pasta := self.around.programs.get("pasta")) else None,
            between=uplink.between(Node(), self.config.uplink) if self.uplink.driver == "slirp4netns" else None,
            # A cluster's node gets it from kind, and its pods from the node.
            hardware=self.outfit.hardware if self.spec.cluster == "none" else Hardware(),
        )

    @property
    def description(self) -> dict[str, Any]:
        """What the job may know."""
        return {
            "job": self.job.id,
            "restart": self.job.restart,
            "node": self.job.node,
            "spec": self.spec.as_dict(),
            "uplink": self.uplink.driver,
            "uplink_reason": self.uplink.reason,
            "podman": str(self.tools.podman),
            "runtime": str(self.tools.runtime),
            "srun": str(self.around.srun or ""),
            "versions": self.around.versions,
            "subuids": [[one.start, one.count] for one in self.granted["uid"]],
            "subgids": [[one.start, one.count] for one in self.granted["gid"]],
            "hardware": self.outfit.hardware.as_dict(),
            "nodes": len(self.fleet.nodes),
            "place": self.fleet.place,
            "fabric": self._segment(self.fabric) if self.fabric else None,
            "gateway": self._way_out(self.gateway) if self.gateway else None,
            "kubernetes": {**self._kubernetes(), "image": self.image},
            "wait": {name: getattr(self.config.wait, name) for name in WAITS},
        }

    def _segment(self, fabric: Fabric) -> dict[str, Any]:
        own = fabric.hardware_address(fabric.place)
        return asdict(Segment(self.config.fabric.subnet, fabric.mtu, own, self.fleet.nodes))

    def _way_out(self, gateway: Gateway) -> dict[str, Any]:
        return asdict(WayOut(str(gateway.inner), str(gateway.outer.ip), gateway.mtu))

    def _kubernetes(self) -> dict[str, Any]:
        settled = vars(self.config.kubernetes).items()
        return {name: _plain(value) for name, value in settled if name not in IMAGES}


def _plain(value: object) -> object:
    """As JSON can hold it."""
    return str(value) if isinstance(value, os.PathLike) else value


def main() -> None:
    os.umask(0o022)
    sys.exit(prolog(os.environ))


def prolog(environ: Mapping[str, str]) -> int:
    """Prepare the node for the job, or leave word why not. What becomes of the node is decided here and only here."""
    known = Known()
    try:
        with remembered() as facts:
            prepare(known, facts, environ)
    except Refused as refused:
        found = refused.findings
    except Exception as error:
        found = [unforeseen(error)]
    else:
        return GOES_ON
    _leave_word(known.job, found)
    _put_on_record(known, found[0])
    return exit_code(found, known)


def exit_code(findings: Iterable[Finding], known: Known) -> int:
    """A user's fault or a full disk never drains the node, and a fault of the node's only if the site wants it.

    But until the shim is known to be there, nothing would keep the job's script from running without what it asked for.
    """
    drains = known.config.node_fault == "drain" and any(found.fault == "node" for found in findings)
    return DRAINS if drains or not known.shim else GOES_ON


def prepare(known: Known, facts: Facts, environ: Mapping[str, str]) -> None:
    """Make all that the job needs on this node; on failure nothing of it is left."""
    wrong = _configure(known, facts)
    around = checks.look_around(known.config, facts, environ)
    _demand(checks.shim_checks(around))
    known.shim = True
    job = known.job = Job.from_hook(environ)
    spec = known.spec = _spec(environ)
    if not spec.enabled:
        return
    with _blamed("nodes", "user"):
        crew = fleet.of(job, spec, environ)
    if crew.place is None:
        journal.log("takes no part", phase=PHASE, job=job)
        return
    _demand(wrong)
    _demand(_policy(job, known.config.policy, environ, spec))
    _demand(checks.node_checks(known.config, around, facts))
    granted = subids.granted(job.user)
    _demand(checks.user_checks(job, granted))
    way, image, outfit = _uplink(spec, known.config, around), _image(spec, known.config), _outfit(facts, environ)
    fabric, gateway = _fabric(job, crew, known.config, around), _gateway(job, way, known.config)
    _carry_out(Plan(job, spec, known.config, around, way, granted, image, outfit, crew, fabric, gateway))


def _carry_out(plan: Plan) -> None:
    with _undone_on_failure(plan.job, plan.config):
        _make(plan)
    what = f"prepared with {plan.config.scratch.kind} scratch and {plan.uplink.driver} ({plan.uplink.reason})"
    if plan.fabric:
        what += f", and {len(plan.fleet.nodes)} nodes over {plan.fabric.interface}"
    seconds, given = round(course.now() - Process.current().began, 3), " ".join(plan.outfit.names)
    journal.log(what, phase=PHASE, job=plan.job, uplink=plan.uplink.driver, features=given, seconds=seconds)
    for one in plan.outfit.left_out:
        journal.log(f"feature {one}", phase=PHASE, job=plan.job)
    record.publish(plan.config.metrics.directory)


def unforeseen(error: Exception) -> Finding:
    match error:
        case UserError():
            return Finding("node", error.what, error.remedy)
        case MoorageError():
            return Finding("node", str(error), "tell the administrator of this node")
        case _:
            cause = f"{type(error).__name__}: {error}"
            return Finding("node", cause, "tell the administrator of this node", "room" if no_room(error) else "node")


def _configure(known: Known, facts: Facts) -> list[Finding]:
    """What is wrong with the configuration; the shim is looked for all the same."""
    try:
        known.config = configuration.load(facts=facts)
    except UserError as error:
        return [Finding("configuration", error.what, error.remedy)]
    return []


def _spec(environ: Mapping[str, str]) -> Spec:
    try:
        return parse(environ.get(HOOK, "0"))
    except UsageError as error:
        raise Refused([Finding("spec", error.what, error.remedy, "user")]) from error


def _demand(findings: Iterable[Finding]) -> None:
    if found := list(findings):
        raise Refused(found)


@contextmanager
def _blamed(check: str, fault: Literal["node", "user"]) -> Iterator[None]:
    """What goes wrong here keeps the job from its cluster, and is said to be this one's fault.

    That other jobs have taken something, so to speak, is nobody's fault, and least of all the node's.
    """
    try:
        yield
    except Taken as error:
        raise Refused([Finding(check, error.what, error.remedy, "user")]) from error
    except UserError as error:
        raise Refused([Finding(check, error.what, error.remedy, fault)]) from error


def _uplink(spec: Spec, config: Config, around: Surroundings) -> uplink.Choice:
    with _blamed("uplink", "user"):
        return uplink.choose(around.offer, config.uplink, spec.uplink)


def _fabric(job: Job, crew: Fleet, config: Config, around: Surroundings) -> Fabric | None:
    """Decided before anything is made, and the same on all nodes."""
    if crew.alone:
        return None
    _demand(slurmconf.several_nodes(around.slurm_conf, around.slurm))
    # Only here: most jobs have one node.
    from moorage import networks

    with _blamed("fabric", "node"):
        return networks.join(job, crew.nodes, config.fabric)


def _gateway(job: Job, way: uplink.Choice, config: Config) -> Gateway | None:
    if way.driver != "kernel":
        return None
    # Only here: the others are Podman's own.
    from moorage import networks
    from moorage.net.gateway import Site

    with _blamed("uplink", "node"):
        return networks.way_out(job, config.fabric.port, Site.of(config.uplink))


def _policy(job: Job, rule: Policy, environ: Mapping[str, str], spec: Spec) -> Iterator[Finding]:
    applicant = policy.Applicant.of(job, environ, spec.nodes)
    return policy.check(rule, applicant, lambda: policy.groups(applicant, rule.groups))


def _outfit(facts: Facts, environ: Mapping[str, str]) -> Outfit:
    """The site's hardware, by what Slurm has allotted to the job."""
    there, wrong = features.examine(facts=facts)
    _demand(Finding(features.CHECK, fault.what, fault.remedy) for fault in wrong)
    given = features.outfit(there, features.allotted(environ))
    _demand(given.faults)
    return given


def _image(spec: Spec, config: Config) -> str | None:
    if spec.version is None or not config.kubernetes.images:
        return config.kubernetes.image
    # Only here: most jobs take what there is.
    from moorage import kind

    with _blamed("kubernetes", "user"):
        return kind.chosen(config.kubernetes.images, spec.version)


@contextmanager
def _undone_on_failure(job: Job, config: Config) -> Iterator[None]:
    """Also what an earlier life of the job left behind, which was requeued or whose node lost its power.

    The state, which alone knows what is left, must not be written over.
    """
    if job.run.exists() or job.state.exists() or names.links_of(job.id):
        _demand(_cleared(job, config, Ending("prolog")))
    try:
        yield
    except BaseException:
        _cleared(job, config)
        raise


def _cleared(job: Job, config: Config, ending: Ending | None = None) -> list[Finding]:
    """What cannot be removed of the job; what was a life of its own is put on record."""
    # Only here: most jobs need it in their Epilog alone.
    from moorage.clearance import clear

    left = clear(job.id, Deadline(config.epilog_limit), ending)
    for leftover in left:
        journal.log(f"left behind: {leftover}", phase=PHASE, job=job, priority=journal.WARNING)
    remedy = "submit the job anew, or tell the administrator of this node"
    return [
        Finding("leftover", f"job {job.id} was here before, and {one}", remedy, "node" if one.ours else "user")
        for one in left
    ]


def _make(plan: Plan) -> None:
    job, config = plan.job, plan.config
    with lock.locked(job.id, config.wait.lock) as held:
        room = scratch.plan(job, config.scratch)
        state = State.begin(job, Limits.of(config), room, plan.fabric, plan.gateway, _about(plan))
        state.save()
        if state.networked:
            _make_networks(state, config)
        rundir.prepare()
        rundir.make(job, config.run)
        files.create(job.log, "")
        course.note(job, course.PROLOG, at=Process.current().began)
        scratch.make(job, config.scratch)
        tools = replace(plan.tools, images=_show_images(plan))
        for name, (text, mode) in podman.files(job, tools).items():
            files.create(job.run / name, text, mode)
        files.create(job.description, json.dumps(plan.description))
        # The warden takes it; until then the state names this process as the job's owner.
        held.release()
        run(["systemctl", "start", systemd.warden_unit(job.id)], limit=config.wait.warden)
        course.note(job, course.LAUNCH)


def _about(plan: Plan) -> About:
    """For the record of the job, which is written when there may be no other configuration, or none."""
    site = plan.config
    more = {"image": plan.image, "features": list(plan.outfit.names)}
    directory = site.metrics.directory
    described = record.described(plan.description, **more)
    return About(time.time(), described, site.records.days, str(directory) if directory else None)


def _make_networks(state: State, config: Config) -> None:
    # Only here: most jobs have none.
    from moorage import networks

    with _blamed("fabric", "node"):
        networks.make(state, config.fabric)


def _show_images(plan: Plan) -> Path | None:
    """The job's view of the node's images, which goes with its run directory; None where there are no images."""
    # Only here: many nodes have none.
    from moorage.images import probe, view
    from moorage.images.store import Store

    store = Store.configured(plan.config.store)
    if not view.exists(store):
        return None
    way = view.choose(plan.config.store.view, probe.trouble(store))
    point = view.make(plan.job, store, way, view.owners(plan.job, plan.granted))
    journal.log(f"shows the node's images by {way.kind} ({way.reason})", phase=PHASE, job=plan.job)
    return point


def _put_on_record(known: Known, found: Finding) -> None:
    site = known.config
    refusal = partial(record.refused, known.job, known.spec, found, time.time())
    record.put(refusal, site.records.days, site.metrics.directory)
    record.publish(site.metrics.directory)


def _leave_word(job: Job | None, findings: list[Finding]) -> None:
    for found in findings:
        journal.log(str(found), phase=PHASE, job=job, priority=journal.ERROR, check=found.check, fault=found.fault)
    if job:
        try:
            rundir.prepare()
            rundir.refuse(job, str(findings[0]))
        except (OSError, MoorageError) as error:
            # Without a run directory `moorage run` fails the job as well, only with fewer words.
            journal.log(f"could not leave word for the job: {error}", phase=PHASE, job=job, priority=journal.ERROR)


if __name__ == "__main__":
    main()
