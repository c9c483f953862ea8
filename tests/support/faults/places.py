"""Where a node has what a fault breaks: on a real node, and wherever a test has made one up."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = {
    "getsubids": "/usr/bin/getsubids", "conmon": "/usr/bin/conmon", "crun": "/usr/bin/crun",
    "kubectl": "/usr/local/bin/kubectl", "netavark": "/usr/lib/podman/netavark", "newuidmap": "/usr/bin/newuidmap",
    "pasta": "/usr/bin/pasta", "podman": "/usr/bin/podman", "runc": "/usr/bin/runc",
    "slirp4netns": "/usr/bin/slirp4netns", "slurmd": "/usr/sbin/slurmd", "mkfs.ext4": "/usr/sbin/mkfs.ext4",
}  # fmt: skip


@dataclass(frozen=True)
class Places:
    root: Path = Path("/")
    slurm: Path = Path("/etc/slurm")
    shim: Path = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm/moorage.so")
    configuration: Path = Path("/etc/moorage/moorage.yaml")
    features: Path = Path("/etc/moorage/features.d")
    programs: Mapping[str, str] = field(default_factory=lambda: PROGRAMS)
    runtimes: tuple[Path, ...] = (Path("/usr/bin/crun"), Path("/usr/bin/runc"), Path("/usr/sbin/runc"))
    # Where jobs have what is theirs; a made-up node has it there, too.
    scratch: Path = Path("/var/lib/moorage/scratch")
    states: Path = Path("/var/lib/moorage/jobs")
    store: Path = Path("/var/lib/moorage/store")
    run: Path = Path("/run/moorage")

    def file(self, path: str) -> Path:
        """A file of the system's own."""
        return self.root / path.lstrip("/")

    def sysctl(self, name: str) -> Path:
        return self.file("/proc/sys") / name

    def unit(self, name: str) -> Path:
        return self.file("/etc/systemd/system") / name

    def program(self, name: str) -> Path:
        return Path(self.programs[name])

    @property
    def slurm_conf(self) -> Path:
        return self.slurm / "slurm.conf"

    @property
    def plugstack(self) -> Path:
        return self.slurm / "plugstack.conf"

    @property
    def prolog(self) -> Path:
        return self.slurm / "prolog.d/50-moorage"

    @property
    def epilog(self) -> Path:
        return self.slurm / "epilog.d/50-moorage"

    @property
    def scope(self) -> Path:
        return next(self.file("/sys/fs/cgroup/system.slice").glob("*slurmstepd.scope"), Path("/no-scope"))

    @property
    def images(self) -> Path:
        return self.store / "images/overlay-images/images.json"

    @property
    def description(self) -> Path:
        """Of an image; the list of its layers lies beside it."""
        found = (path for path in self.images.parent.glob("*/=*") if b"amd64" in path.read_bytes())
        return next(found, Path("/no-image"))

    @property
    def layer(self) -> Path:
        return next(self.store.glob("images/overlay/*/diff"), Path("/no-layer"))

    @property
    def dependencies(self) -> Path:
        """The list of the modules that the running kernel can load."""
        return self.file("/lib/modules") / os.uname().release / "modules.dep"

    def pattern(self, line: str) -> str:
        """A pattern in which <slurm>, <podman> and the like stand for paths."""
        return re.sub(r"<([\w.]+)>", lambda match: re.escape(self._named(match[1])), line)

    def _named(self, name: str) -> str:
        return str(self.program(name) if name in self.programs else getattr(self, name))
