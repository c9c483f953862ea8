"""The checks that a job with --k8s has to pass: the Prolog makes them for each job, the doctor at any time.

The doctor has a further list of its own, of the same type: doctor/examine.py.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Generic, TypeVar

from moorage.common.errors import UserError
from moorage.common.job import Job
from moorage.linux import idmap
from moorage.node import kernel_checks, programs, scratch_disk, shim, slurmconf, subids, uplink, uplink_speed
from moorage.node.config.schema import Config
from moorage.node.factcache import Facts
from moorage.node.finding import Finding, Owner
from moorage.node.hostfiles import Node
from moorage.node.programs import Program

POLICY: Final = "/etc/containers/policy.json"


@dataclass(frozen=True)
class Surroundings:
    """What this node has that jobs are made of, as found once for all checks."""

    programs: Mapping[str, Program]
    slurmd: Program | None
    srun: Path | None
    slurm_conf: Path
    slurm: slurmconf.Settings
    hindered: Mapping[str, str]

    @property
    def slurm_says(self) -> str:
        """What slurmd -V says: the name and number of its release."""
        return self.slurmd.version if self.slurmd else ""

    @property
    def versions(self) -> dict[str, str]:
        """What each program says with --version."""
        return {name: program.version for name, program in self.programs.items() if program.version}

    @property
    def offer(self) -> uplink.Offer:
        helpers = {name: self.programs[name].version for name in programs.UPLINKS if name in self.programs}
        return uplink.Offer(self.versions.get("podman", ""), helpers, self.hindered, uplink_speed.known(helpers))


def look_around(config: Config, facts: Facts, environ: Mapping[str, str]) -> Surroundings:
    places = slurm_places(config, _parent())
    slurmd = programs.find("slurmd", *places)
    slurm_conf = slurmconf.place(environ)
    return Surroundings(
        programs=programs.installed(facts),
        slurmd=Program(slurmd, programs.version(slurmd, facts, "-V")) if slurmd else None,
        srun=programs.find("srun", *places),
        slurm_conf=slurm_conf,
        slurm=slurmconf.read(slurm_conf),
        hindered=uplink.hindered(Node(), config.uplink),
    )


def slurm_places(config: Config, parent: Path) -> list[Path]:
    """Where to look for Slurm's programs before PATH: in slurm.bin, and near the slurmd that runs."""
    given = [config.slurm.bin] if config.slurm.bin else []
    running = [parent.parent] if parent.name in ("slurmd", "slurmstepd") else []
    return [place for one in (*given, *running) for place in (one, one.parent / "bin", one.parent / "sbin")]


def shim_checks(around: Surroundings) -> Iterator[Finding]:
    """Whether the shim is there. Without it a job's script would run without what it asked for."""
    plugstack = shim.stack(slurmconf.plugstack(around.slurm_conf, around.slurm))
    if fault := shim.check(plugstack, around.slurm_says):
        yield Finding("shim", fault.what, fault.remedy, code=fault.code)


@dataclass(frozen=True)
class Scene:
    """A node, as checks look at it."""

    config: Config
    around: Surroundings
    facts: Facts
    node: Node


@dataclass(frozen=True)
class Account:
    """A user's account on a node, as checks look at it."""

    job: Job
    # The subordinate ids of the user, by their kind.
    granted: Mapping[str, list[idmap.Range]]
    node: Node


Seen = TypeVar("Seen", contravariant=True)


@dataclass(frozen=True)
class Check(Generic[Seen]):
    """One thing to look at."""

    name: str
    # Who can act on what it finds.
    owner: Owner
    # Where the manual, below docs, tells of it.
    page: str
    look: Callable[[Seen], Iterator[Finding]]
    for_root: bool = False
    # Takes more than a moment.
    slow: bool = False

    def findings(self, seen: Seen) -> Iterator[Finding]:
        return (replace(found, owner=self.owner) for found in self.look(seen))


def node_checks(config: Config, around: Surroundings, facts: Facts, node: Node | None = None) -> Iterator[Finding]:
    """Everything that keeps all jobs from starting on this node."""
    scene = Scene(config, around, facts, node or Node())
    return (finding for check in EACH_JOB for finding in check.findings(scene))


def user_checks(job: Job, granted: Mapping[str, list[idmap.Range]], node: Node | None = None) -> Iterator[Finding]:
    """Everything that keeps this user's jobs from starting on this node: the findings of the first check with any."""
    account = Account(job, granted, node or Node())
    return iter(next(filter(None, (list(check.findings(account)) for check in EACH_USER)), []))


def _not_root(account: Account) -> Iterator[Finding]:
    if account.job.uid == 0:
        yield Finding("user", "root cannot use --k8s", "submit the job as a user", code="M-USER-1")


def _one_directory(account: Account) -> Iterator[Finding]:
    job = account.job
    # Where nss_slurm serves accounts, none is known before the job's first step.
    with suppress(KeyError):
        known = pwd.getpwnam(job.user).pw_uid
        if known != job.uid:
            what = f"user {job.user} is {job.uid} to Slurm and {known} to this node"
            yield Finding("user", what, "let both ask the same directory of users", code="M-USER-2")


def _subids(account: Account) -> Iterator[Finding]:
    for kind in (subids.UIDS, subids.GIDS):
        yield from subids.check(kind, account.job, account.granted[kind.name], account.node)


def _namespace(scene: Scene) -> Iterator[Finding]:
    """systemd starts the warden, slurmd the job: both must see the mounts that we make."""
    node = scene.node
    if not node.has("/run/systemd/system"):
        yield Finding(
            "systemd", "this node was not booted with systemd", "boot with it: it runs the warden", code="M-SYSTEMD-8"
        )
        return
    ours, first = (node.path(f"/proc/{process}/ns/mnt") for process in ("self", "1"))
    if ours.readlink() != first.readlink():
        remedy = "take PrivateTmp=, ProtectSystem= and the like out of slurmd.service"
        yield Finding("systemd", "slurmd runs in a mount namespace of its own", remedy, code="M-SYSTEMD-1")


def _policy(scene: Scene) -> Iterator[Finding]:
    """Podman takes no image without this file, and a job cannot name another one."""
    if not scene.node.has(POLICY):
        yield Finding("podman", f"there is no {POLICY}", "install the package containers-common", code="M-PODMAN-1")


def _uplink(scene: Scene) -> Iterator[Finding]:
    if not programs.podman_does(scene.around.programs):
        return
    try:
        uplink.choose(scene.around.offer, scene.config.uplink)
    except UserError as error:
        yield Finding("uplink", error.what, error.remedy, code=error.code)


CHECKED: Final = "reference/checks.md#checks"
SLURM: Final = "reference/slurm.md#slurms-settings"
# A job is told the first finding, so the order matters.
EACH_JOB: Final[tuple[Check[Scene], ...]] = (
    Check("shim", "node", CHECKED, lambda scene: shim_checks(scene.around)),
    Check("slurm", "node", CHECKED, lambda scene: programs.slurm(scene.around.slurm_says)),
    Check("slurm.conf", "site", SLURM, lambda scene: slurmconf.check(scene.around.slurm_conf, scene.around.slurm)),
    Check("systemd", "node", CHECKED, _namespace, for_root=True),
    Check("kernel", "node", CHECKED, lambda scene: kernel_checks.check(scene.node, os.uname().release, scene.facts)),
    Check("apparmor", "node", CHECKED, lambda scene: kernel_checks.apparmor(scene.node), for_root=True),
    Check("programs", "node", CHECKED, lambda scene: programs.check(scene.around.programs)),
    Check("policy", "node", CHECKED, _policy),
    Check("uplink", "node", "install/network.md#uplinks", _uplink),
    Check(
        "scratch",
        "node",
        "install/disks.md#scratch",
        lambda scene: scratch_disk.check(scene.config.scratch),
        for_root=True,
    ),
)
EACH_USER: Final[tuple[Check[Account], ...]] = (
    Check("user", "user", CHECKED, _not_root),
    Check("directory of users", "site", CHECKED, _one_directory),
    Check("subordinate ids", "user", CHECKED, _subids),
)


def _parent() -> Path:
    """The program that started this one; after an update its file may be gone."""
    try:
        program = Path(f"/proc/{os.getppid()}/exe").readlink()
        return program.with_name(program.name.removesuffix(" (deleted)"))
    except OSError:
        return Path("/")
