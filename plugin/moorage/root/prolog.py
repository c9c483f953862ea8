"""The Prolog: root checks and prepares a node before a job with --k8s may start there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from moorage.common import participants
from moorage.common.errors import MoorageError, UsageError, UserError, told
from moorage.common.job import Job
from moorage.common.participants import Participants
from moorage.common.spec import HOOK, Spec, parse
from moorage.node import checks, features, slurmconf, subids, uplink
from moorage.node.checks import Surroundings
from moorage.node.config.load import load
from moorage.node.config.schema import Config, Policy
from moorage.node.factcache import Facts, remembered
from moorage.node.features import Outfit
from moorage.node.finding import Finding, Refused, blamed, demand, unforeseen
from moorage.root import journal, policy, rundir
from moorage.root import prepare as preparation
from moorage.root.plan import Plan
from moorage.root.prepare import PHASE
from moorage.root.records import record

if TYPE_CHECKING:
    from moorage.root.net.fabric import Fabric
    from moorage.root.net.gateway import Gateway

# slurmd drains the node for every code but 0.
GOES_ON: Final = 0
DRAINS: Final = 1


@dataclass
class Known:
    """What is known so far: it decides what happens to the node after a failure."""

    config: Config = field(default_factory=Config)
    shim: bool = False
    job: Job | None = None
    spec: Spec | None = None
    # slurmd's process id. If slurmd is restarted meanwhile, the job's Epilog may run before this Prolog is done.
    asker: int = field(default_factory=os.getppid)

    @property
    def asked(self) -> bool:
        return os.getppid() == self.asker


def main() -> None:
    os.umask(0o022)
    sys.exit(prolog(os.environ))


def prolog(environ: Mapping[str, str]) -> int:
    """Prepare the node for the job, or leave a refusal. Only this function decides what happens to the node."""
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
    if not known.asked:
        # There may be no Epilog any more that would remove a refusal.
        journal.log(f"leaves no refusal: {found[0].line}", phase=PHASE, job=known.job, priority=journal.WARNING)
        return GOES_ON
    _refuse(known.job, found)
    _put_on_record(known, found[0])
    return exit_code(found, known)


def exit_code(findings: Iterable[Finding], known: Known) -> int:
    """Drain for findings that drain, if the configuration says so; see finding.MEANINGS.

    Drain also while it is not known that the shim is there: without it the job's script would run without its cluster.
    """
    drains = known.config.node_fault == "drain" and any(found.drains for found in findings)
    return DRAINS if drains or not known.shim else GOES_ON


def prepare(known: Known, facts: Facts, environ: Mapping[str, str]) -> None:
    """Make everything that the job needs on this node; after a failure nothing is left."""
    wrong = _configure(known, facts)
    around = checks.look_around(known.config, facts, environ)
    demand(checks.shim_checks(around))
    known.shim = True
    job = known.job = Job.from_hook(environ)
    spec = known.spec = _spec(environ)
    if not spec.enabled:
        return
    with blamed("nodes", "user"):
        nodes = participants.of(job, spec, environ)
    if nodes.place is None:
        journal.log("does not take part", phase=PHASE, job=job)
        return
    demand(wrong)
    demand(_policy(job, known.config.policy, environ, spec))
    demand(checks.node_checks(known.config, around, facts))
    granted = subids.granted(job.user)
    demand(checks.user_checks(job, granted))
    choice, image, outfit = _uplink(spec, known.config, around), _image(spec, known.config), _outfit(facts, environ)
    fabric, gateway = _fabric(job, nodes, known.config, around), _gateway(job, choice, known.config)
    plan = Plan(job, spec, known.config, around, choice, granted, image, outfit, nodes, fabric, gateway)
    preparation.carry_out(plan, lambda: known.asked)


def _configure(known: Known, facts: Facts) -> list[Finding]:
    """The findings about the configuration. They are told later: the shim comes first."""
    try:
        known.config = load(facts=facts)
    except UserError as error:
        return [Finding("configuration", error.what, error.remedy, "site", code=error.code)]
    return []


def _spec(environ: Mapping[str, str]) -> Spec:
    try:
        return parse(environ.get(HOOK, "0"))
    except UsageError as error:
        raise Refused([Finding("spec", error.what, error.remedy, "user", code=error.code)]) from error


def _uplink(spec: Spec, config: Config, around: Surroundings) -> uplink.Choice:
    with blamed("uplink", "user"):
        return uplink.choose(around.offer, config.uplink, spec.uplink)


def _fabric(job: Job, nodes: Participants, config: Config, around: Surroundings) -> Fabric | None:
    """The fabric, decided before anything is made, and the same on all nodes."""
    if nodes.alone:
        return None
    demand(slurmconf.several_nodes(around.slurm_conf, around.slurm))
    # Only here: most jobs have one node.
    from moorage.root.net import job_networks

    with blamed("fabric", "node"):
        return job_networks.join(job, nodes.nodes, config.fabric)


def _gateway(job: Job, choice: uplink.Choice, config: Config) -> Gateway | None:
    if choice.driver != "kernel":
        return None
    # Only here: the other uplinks need nothing from root.
    from moorage.root.net import job_networks
    from moorage.root.net.gateway import Site

    with blamed("uplink", "node"):
        return job_networks.way_out(job, config.fabric.port, Site.of(config.uplink))


def _policy(job: Job, rule: Policy, environ: Mapping[str, str], spec: Spec) -> Iterator[Finding]:
    applicant = policy.Applicant.of(job, environ, spec.nodes)
    return policy.check(rule, applicant, lambda: policy.groups(applicant, rule.groups))


def _outfit(facts: Facts, environ: Mapping[str, str]) -> Outfit:
    """The hardware of the job, by the resources that Slurm gave it."""
    there, wrong = features.examine(facts=facts)
    demand(Finding(features.CHECK, fault.what, fault.remedy, "site", code=fault.code) for fault in wrong)
    given = features.outfit(there, features.allotted(environ), facts)
    demand(given.faults)
    return given


def _image(spec: Spec, config: Config) -> str | None:
    if spec.version is None or not config.kubernetes.images:
        return config.kubernetes.image
    # Only here: most jobs ask for no version.
    from moorage.common import node_image

    with blamed("kubernetes", "user"):
        return node_image.chosen(config.kubernetes.images, spec.version)


def _put_on_record(known: Known, found: Finding) -> None:
    site = known.config
    refusal = partial(record.refused, known.job, known.spec, found, time.time())
    record.put(refusal, site.records.days, site.metrics.directory)
    record.publish(site.metrics.directory)


def _refuse(job: Job | None, findings: list[Finding]) -> None:
    for found in findings:
        journal.log(found.line, phase=PHASE, job=job, priority=journal.ERROR, check=found.check, fault=found.fault)
    if job:
        try:
            rundir.prepare()
            rundir.refuse(job, findings[0].line)
        except (OSError, MoorageError) as error:
            # Without a run directory `moorage run` fails the job as well, but cannot say why.
            journal.log(
                f"could not leave a refusal for the job: {told(error)}", phase=PHASE, job=job, priority=journal.ERROR
            )


if __name__ == "__main__":
    main()
