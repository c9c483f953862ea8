"""Everything that must be right before a job may start: one list for the Prolog, the doctor and the tests of a site."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from moorage.common.errors import UserError
from moorage.common.job import Job
from moorage.linux import idmap
from moorage.node import kernel_checks, programs, scratch_disk, shim, slurmconf, subids, uplink, uplink_speed
from moorage.node.config.schema import Config
from moorage.node.factcache import Facts
from moorage.node.finding import Finding
from moorage.node.hostfiles import Node
from moorage.node.programs import Program

POLICY: Final = "/etc/containers/policy.json"


@dataclass(frozen=True)
class Surroundings:
    """What the checks have found on this node besides faults, and what a job is made of."""

    programs: Mapping[str, Program]
    slurmd: Program | None
    srun: Path | None
    slurm_conf: Path
    slurm: slurmconf.Settings
    hindered: Mapping[str, str]

    @property
    def slurm_says(self) -> str:
        """The name and number of its release."""
        return self.slurmd.version if self.slurmd else ""

    @property
    def versions(self) -> dict[str, str]:
        """What each program says of itself, and which pasta and slirp4netns there are."""
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
    """Where Slurm's programs may be besides PATH: as configured, or about the slurmd that runs."""
    given = [config.slurm.bin] if config.slurm.bin else []
    running = [parent.parent] if parent.name in ("slurmd", "slurmstepd") else []
    return [place for one in (*given, *running) for place in (one, one.parent / "bin", one.parent / "sbin")]


def shim_checks(around: Surroundings) -> Iterator[Finding]:
    """What keeps a job's script from being stopped, whatever else is found wrong."""
    plugstack = shim.stack(slurmconf.plugstack(around.slurm_conf, around.slurm))
    if fault := shim.check(plugstack, around.slurm_says):
        yield Finding("shim", fault.what, fault.remedy)


@dataclass(frozen=True)
class Scene:
    """A node, as checks look at it."""

    config: Config
    around: Surroundings
    facts: Facts
    node: Node


Seen = TypeVar("Seen", bound=Scene, contravariant=True)


@dataclass(frozen=True)
class Check(Generic[Seen]):
    """One thing to look at; some show to root alone, and some take more than a moment."""

    name: str
    look: Callable[[Seen], Iterator[Finding]]
    for_root: bool = False
    slow: bool = False


def node_checks(config: Config, around: Surroundings, facts: Facts, node: Node | None = None) -> Iterator[Finding]:
    """What keeps every job from starting on this node."""
    scene = Scene(config, around, facts, node or Node())
    return (finding for check in EACH_JOB for finding in check.look(scene))


def user_checks(job: Job, granted: Mapping[str, list[idmap.Range]], node: Node | None = None) -> Iterator[Finding]:
    """What keeps this user's jobs from starting on this node."""
    if job.uid == 0:
        yield Finding("user", "root has no use for --k8s", "submit the job as a user", "user")
        return
    # Where nss_slurm serves accounts, none is known before the job's first step.
    with suppress(KeyError):
        known = pwd.getpwnam(job.user).pw_uid
        if known != job.uid:
            what = f"user {job.user} is {job.uid} to Slurm and {known} to this node"
            yield Finding("user", what, "let both ask the same directory of users")
            return
    for kind in (subids.UIDS, subids.GIDS):
        yield from subids.check(kind, job, granted[kind.name], node or Node())


def _namespace(scene: Scene) -> Iterator[Finding]:
    """The warden is systemd's child and the job slurmd's: mounts that we make must be there for both."""
    node = scene.node
    if not node.has("/run/systemd/system"):
        yield Finding("systemd", "this node was not booted with systemd", "boot with it: it runs the warden")
        return
    ours, first = (node.path(f"/proc/{process}/ns/mnt") for process in ("self", "1"))
    if ours.readlink() != first.readlink():
        remedy = "take PrivateTmp=, ProtectSystem= and the like out of slurmd.service"
        yield Finding("systemd", "slurmd runs in a mount namespace of its own", remedy)


def _policy(scene: Scene) -> Iterator[Finding]:
    """Podman takes no image without one, and no configuration of a job's own can name another."""
    if not scene.node.has(POLICY):
        yield Finding("podman", f"there is no {POLICY}", "install the package containers-common")


def _uplink(scene: Scene) -> Iterator[Finding]:
    if not programs.podman_does(scene.around.programs):
        return
    try:
        uplink.choose(scene.around.offer, scene.config.uplink)
    except UserError as error:
        yield Finding("uplink", error.what, error.remedy)


# In the order in which jobs are told of the first.
EACH_JOB: Final[tuple[Check[Scene], ...]] = (
    Check("shim", lambda scene: shim_checks(scene.around)),
    Check("slurm", lambda scene: programs.slurm(scene.around.slurm_says)),
    Check("slurm.conf", lambda scene: slurmconf.check(scene.around.slurm_conf, scene.around.slurm)),
    Check("systemd", _namespace, for_root=True),
    Check("kernel", lambda scene: kernel_checks.check(scene.node, os.uname().release, scene.facts)),
    Check("apparmor", lambda scene: kernel_checks.apparmor(scene.node), for_root=True),
    Check("programs", lambda scene: programs.check(scene.around.programs)),
    Check("policy", _policy),
    Check("uplink", _uplink),
    Check("scratch", lambda scene: scratch_disk.check(scene.config.scratch), for_root=True),
)


def _parent() -> Path:
    """The program that started this one; after an update its file may be gone."""
    try:
        program = Path(f"/proc/{os.getppid()}/exe").readlink()
        return program.with_name(program.name.removesuffix(" (deleted)"))
    except OSError:
        return Path("/")
