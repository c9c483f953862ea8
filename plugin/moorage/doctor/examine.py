"""The examination of a node: the Prolog's checks, and further ones for which no job should wait."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from moorage.common import job
from moorage.common.errors import MoorageError, UserError, no_room
from moorage.doctor import clock, multi_node, units, versions
from moorage.node import (
    features,
    kernel_checks,
    programs,
    routes,
    scratch_disk,
    slurmconf,
    subids,
    uplink,
    uplink_speed,
)
from moorage.node.checks import CHECKED, EACH_JOB, SLURM, Check, Scene, look_around
from moorage.node.config import load
from moorage.node.config.schema import Config
from moorage.node.factcache import Facts, remembered
from moorage.node.finding import Finding, Kind
from moorage.node.hostfiles import Node

if TYPE_CHECKING:
    from moorage.root.images.view import Way

QOS_TOLD: Final = (26, 5)
SLURMD: Final = "*.slice/slurmd.service/cgroup.procs"


@dataclass(frozen=True)
class Examined(Scene):
    """A node, as the doctor looks at it; with `every_byte` it reads all bytes of the images."""

    every_byte: bool = False

    @cached_property
    def way(self) -> Way | None:
        """How jobs see the images. A test mount finds out, once for all checks."""
        # Only here: most nodes have no images.
        from moorage.root.images import view

        return view.way(self.config.store)


@dataclass
class Report:
    """The findings, and the checks that only root may make."""

    findings: list[Finding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    # By program: a job needs the same versions on all its nodes.
    versions: dict[str, str] = field(default_factory=dict)
    # How jobs see the node's images, and what that costs.
    images: str = ""

    @property
    def faults(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind != "advice"]

    def add(self, *findings: Finding) -> None:
        self.findings += [finding for finding in findings if finding not in self.findings]


def _own_mounts(scene: Scene) -> Iterator[Finding]:
    """Whether slurmd has its own mount namespace. A Prolog, slurmd's child, looks at its own namespace instead."""
    node = scene.node
    for listed in node.path(kernel_checks.CGROUPS).glob(SLURMD):
        for pid in listed.read_text().split():
            with suppress(FileNotFoundError):
                theirs, first = (node.path(f"/proc/{process}/ns/mnt").readlink() for process in (pid, "1"))
                if theirs != first:
                    remedy = "take PrivateTmp=, ProtectSystem= and the like out of slurmd.service"
                    yield Finding("systemd", "slurmd runs in a mount namespace of its own", remedy, code="M-SYSTEMD-1")
                    return


def _limits(scene: Examined) -> Iterator[Finding]:
    taken = {
        "Prolog": scene.config.prolog_limit(_asking(scene), _copying(scene)),
        "Epilog": scene.config.epilog_limit,
    }
    return slurmconf.limits(scene.around.slurm_conf, scene.around.slurm, taken)


def _asking(scene: Scene) -> float:
    """How long a Prolog may take to ask for the addresses of other nodes."""
    site = scene.config
    if site.policy.most_nodes == 1 or site.fabric.hosts:
        return 0
    from moorage.root.net import peers

    return peers.WAIT


def _copying(scene: Examined) -> float:
    """How long a Prolog may take to copy images; only root can know whether one does."""
    if os.geteuid() != 0 or not scene.config.store.path.exists():
        return 0
    # Another check finds what is wrong with the store.
    with suppress(OSError, MoorageError):
        return scene.config.wait.copy if scene.way and scene.way.kind == "copy" else 0
    return 0


def _subids(scene: Scene) -> Iterator[Finding]:
    return (finding for kind in (subids.UIDS, subids.GIDS) for finding in subids.whole(kind, scene.node))


def _policy(scene: Scene) -> Iterator[Finding]:
    """Parts of the policy that this Slurm does not support."""
    rule = scene.config.policy
    if rule.qos and programs.number(scene.around.slurm_says) < QOS_TOLD:
        cause = "policy.qos refuses every job: before Slurm 26.05 a Prolog does not learn the QOS"
        yield Finding("policy", cause, "use another rule", code="M-POLICY-1")
    for name, given, word in (("accounts", rule.accounts, "account"), ("qos", rule.qos, "qos")):
        if given and not slurmconf.checks(word, scene.around.slurm):
            cause = f"policy.{name} refuses nobody: Slurm does not check what a user writes after --{word}="
            yield Finding(
                "policy",
                cause,
                f"AccountingStorageEnforce=associations,qos in {scene.around.slurm_conf}",
                code="M-POLICY-2",
            )


def _speeds(scene: Scene) -> Iterator[Finding]:
    """Advice if a speed was measured with another kernel or program: it does not count any more."""
    if not uplink_speed.PLACE.exists():
        return
    if changed := uplink.unmeasured(scene.around.offer, scene.config.uplink):
        cause = f"the kernel or a program has changed since the uplinks were measured: {', '.join(changed)}"
        yield Finding("uplink", cause, "measure them again: `moorage net measure`", kind="advice", code="M-UPLINK-1")


def _features(scene: Scene) -> Iterator[Finding]:
    there, faults = features.examine(facts=scene.facts)
    try:
        features.vendors(there, scene.facts)
    except UserError as fault:
        faults.append(fault)
    return (Finding(features.CHECK, fault.what, fault.remedy, code=fault.code) for fault in faults)


def _devices(scene: Scene) -> Iterator[Finding]:
    there, _ = features.examine(facts=scene.facts)
    return slurmconf.devices(scene.around.slurm_conf, filter(None, (feature.gres for feature in there)))


# The rest imports what it needs only where there is something to look at: health checks run often.


def _clusters(scene: Scene) -> Iterator[Finding]:
    if images := scene.config.kubernetes.images:
        from moorage.doctor import kubernetes

        yield from kubernetes.check(images, scene.config.kubernetes.kind, scene.facts)


def _networks(scene: Scene) -> Iterator[Finding]:
    """Advice: jobs start, but their containers cannot reach the site's networks that overlap with theirs."""
    site, pool = scene.config.kubernetes, scene.config.podman.pool
    wanted = [("kubernetes.pods", site.pods), ("kubernetes.services", site.services)] if site.images else []
    if not routes.free_subnets(scene.node, pool):
        wanted.append(("podman.pool", pool))
    if wanted:
        from ipaddress import IPv4Network

        from moorage.node import network_demands

        for setting, subnet in wanted:
            if fault := network_demands.route(routes.networks(scene.node), IPv4Network(subnet), setting):
                yield Finding(setting.partition(".")[0], fault.what, fault.remedy, kind="advice", code=fault.code)


def _node_image(scene: Scene) -> Iterator[Finding]:
    if images := scene.config.kubernetes.images:
        from moorage.doctor import kubernetes

        for image in images:
            yield from kubernetes.image(image, scene.config)


def _store(scene: Examined) -> Iterator[Finding]:
    if scene.config.store.path.exists():
        from moorage.root.images import health

        yield from health.check(scene.config.store, lambda: scene.way, every_byte=scene.every_byte)


def _images(scene: Examined) -> str:
    from moorage.root.images import health

    # Another check finds what is wrong with the store.
    with suppress(OSError, MoorageError):
        return health.shown(scene.config.store, scene.way)
    return ""


def _leftovers(scene: Scene) -> Iterator[Finding]:
    from moorage.doctor import leftovers

    yield from leftovers.check(scene.config.scratch.path)


HARDWARE: Final = "install/hardware.md#hardware-of-a-site"
CLUSTERS: Final = "install/disks.md#images"
SWEEP: Final = "operate/README.md#sweep"
NEEDED: Final = "install/by-role.md#what-a-node-needs"
# Checks that cost too much for each job, or that find nothing that would keep one from starting.
MORE: Final[tuple[Check[Examined], ...]] = (
    Check("prolog", "site", SLURM, lambda scene: slurmconf.prolog(scene.around.slurm_conf, scene.around.slurm)),
    Check("time limits", "site", SLURM, _limits),
    Check("accounting", "site", SLURM, lambda scene: slurmconf.accounting(scene.around.slurm_conf, scene.around.slurm)),
    Check("cgroup.conf", "site", HARDWARE, _devices),
    Check("slurmd", "node", CHECKED, _own_mounts, for_root=True),
    Check("policy", "site", "install/policy.md#policy", _policy),
    Check("features", "site", HARDWARE, _features),
    Check("speeds", "node", "install/network.md#uplinks", _speeds, for_root=True),
    Check(multi_node.CHECK, "site", "install/network.md#between-nodes-the-fabric", multi_node.check),
    Check("subids", "node", CHECKED, _subids),
    Check("units", "node", SWEEP, lambda scene: units.check(scene.node)),
    Check("states of units", "node", SWEEP, lambda scene: units.states(), slow=True),
    Check("clock", "node", NEEDED, lambda scene: clock.check(scene.node)),
    Check("state", "node", NEEDED, lambda scene: scratch_disk.memory(job.STATE), for_root=True),
    Check("kubernetes", "node", CLUSTERS, _clusters),
    Check("networks of containers", "site", CLUSTERS, _networks),
    Check("node image", "node", CLUSTERS, _node_image, for_root=True),
    Check("store", "node", "install/disks.md#images", _store, for_root=True),
    Check("leftovers", "node", SWEEP, _leftovers, for_root=True),
)
ALL: Final[tuple[Check[Examined], ...]] = (*EACH_JOB, *MORE)


def examine(
    environ: Mapping[str, str], *, quick: bool = False, every_byte: bool = False, node: Node | None = None
) -> Report:
    """`quick` uses known versions of programs and leaves out the slow checks."""
    report = Report()
    with remembered(anew=not quick) as facts:
        try:
            settings = _configuration(report, facts)
            if settings is None:
                return report
            around = look_around(settings, facts, environ)
        except OSError as error:
            raise UserError(
                f"{error.filename} cannot be read ({error.strerror})", "run it with sudo", code="M-CHECK-2"
            ) from None
        scene = Examined(settings, around, facts, node or Node(), every_byte)
        _carry_out([check for check in ALL if not (quick and check.slow)], scene, report)
        report.versions |= versions.of(scene)
        if not quick:
            report.images = _images(scene)
    return report


def _carry_out(checks: Sequence[Check[Examined]], scene: Examined, report: Report) -> None:
    """Make each check, also after one that fails."""
    root = os.geteuid() == 0
    for check in checks:
        if check.for_root and not root:
            report.left_out.append(check.name)
            continue
        try:
            for finding in check.findings(scene):
                report.add(finding)
        except (OSError, MoorageError) as error:
            if isinstance(error, PermissionError) and not root:
                report.left_out.append(check.name)
            else:
                cause = f"the check failed to run ({error})"
                kind: Kind = "room" if no_room(error) else "fault"
                report.add(Finding(check.name, cause, "fix this first", check.owner, kind, code="M-CHECK-3"))


def _configuration(report: Report, facts: Facts) -> Config | None:
    """The configuration; None if the file cannot be read at all."""
    try:
        settings, faults = load.whole(load.entries(load.PLACE, facts), load.PLACE)
    except UserError as fault:
        report.add(Finding("configuration", fault.what, fault.remedy, "site", code=fault.code))
        return None
    report.add(*(Finding("configuration", fault.what, fault.remedy, "site", code=fault.code) for fault in faults))
    return settings
