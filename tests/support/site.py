"""A node on which everything is right: what a test breaks, the checks must find, and nothing else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from moorage.common import command
from moorage.linux import mounts
from moorage.node import kernel_checks
from moorage.node.config import load
from moorage.node.config.values import MIB
from support import archives
from support.namespaces import MOUNT, fresh

PLACE = Path("/run/site")
REPOSITORY = Path(__file__).parents[2]
RELEASE = "6.12.48+deb13-cloud-amd64"
SCOPE = "sys/fs/cgroup/system.slice/slurmstepd.scope"
IMAGE = "localhost/node:v1.36.3"
MOTD = b"hello\n"
SLURM_CONF = """\
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
PrologFlags=Contain
Prolog={slurm}/prolog.d/*
Epilog={slurm}/epilog.d/*
PrologTimeout=600
EpilogTimeout=120
"""
CONFIGURATION = f"""\
scratch: {{kind: directory, size: 64M}}
store: {{view: copy}}
kubernetes:
  image: "{IMAGE}"
"""
VERSIONS = {
    "podman": "podman version 5.4.2",
    "crun": "crun version 1.21",
    "pasta": "pasta 2025_05_03.587980c-2",
    "slirp4netns": "slirp4netns version 1.2.1",
    "kind": "kind version 0.33.0",
    "kubectl": "Client Version: v1.37.0",
    "slurmd": "slurm-wlm 24.11.5",
    "systemctl": (
        "Id=moorage-sweep.service\nActiveState=inactive\nNeedDaemonReload=no\nUnitFileState=enabled\n\n"
        "Id=moorage-sweep.timer\nActiveState=active\nNeedDaemonReload=no\nUnitFileState=enabled\n"
    ),
}
# The whole command, but for where it finds the node.
COMMAND = """\
#!{python} -I
import sys
sys.path.insert(0, {package!r})
from pathlib import Path
from moorage import cli
from moorage.common import command
from moorage.doctor import examine
from moorage.node import hostfiles
from moorage.node.config import load
place = Path({place!r})
command.PATH, load.PLACE = str(place / "bin"), place / "moorage.yaml"
examine.Node = lambda: hostfiles.Node(place / "node")
cli.main()
"""
SILENT = ("conmon", "netavark", "getsubids", "newuidmap", "newgidmap", "srun")
ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t01004D0A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""
DESCRIPTION = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:\nalice:x:1001:1001::/:\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\nalice:x:1001:\n",
    "etc/subuid": "alice:100000:65536\nbob:165536:65536\nroot:300000:65536\n0:300000:65536\n",
    "etc/subgid": "alice:100000:65536\nbob:165536:65536\n",
    "etc/containers/policy.json": "{}",
    "run/systemd/system/.keep": "",
    "sys/fs/cgroup/system.slice/slurmd.service/cgroup.procs": "55\n",
    "sys/class/net/eth0/mtu": "1500\n",
    "proc/net/route": ROUTES,
    "proc/sys/kernel/unprivileged_userns_clone": "1\n",
    "proc/sys/net/ipv4/ip_unprivileged_port_start": "1024\n",
}
ENABLED = {
    "multi-user.target": ("moorage-sweep.service", "moorage-trash.service"),
    "timers.target": ("moorage-sweep.timer",),
}


MODULES = ("fs/fuse/fuse", "net/netfilter/nf_tables", "net/netfilter/nft_fwd_netdev", "drivers/net/vxlan/vxlan")


def kernel_files(release: str = RELEASE) -> dict[str, str]:
    """How a kernel that has all that is needed describes itself."""
    return {
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
        f"{SCOPE}/cgroup.controllers": "cpuset cpu io memory pids\n",
        "proc/filesystems": "nodev\tsysfs\nnodev\toverlay\n\text4\n",
        "proc/modules": "overlay 200704 0 - Live 0x0000000000000000\n",
        f"lib/modules/{release}/modules.builtin": "kernel/net/bridge/bridge.ko\n",
        f"lib/modules/{release}/modules.dep": "".join(f"kernel/{name}.ko.xz:\n" for name in MODULES),
        "sys/module/overlay/refcnt": "0\n",
        "sys/module/tun/refcnt": "0\n",
        "sys/module/veth/refcnt": "0\n",
        "dev/fuse": "",
        "dev/net/tun": "",
        "sys/kernel/security/apparmor/profiles": "podman (unconfined)\nlsb_release (enforce)\n",
        **{
            f"proc/sys/{name}": f"{least}\n"
            for name, least in (kernel_checks.NAMESPACES | kernel_checks.LIMITS).items()
        },
    }


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def open_devices(root: Path) -> None:
    for name in kernel_checks.DEVICES:
        (root / name[1:]).chmod(0o666)


@dataclass
class Site:
    """Below `place`: the node's own files, Slurm's, programs, and the configuration; the rest is where jobs have it."""

    place: Path
    store: Path = Path("/var/lib/moorage/store")
    scratch: Path = Path("/var/lib/moorage/scratch")
    states: Path = Path("/var/lib/moorage/jobs")
    run: Path = Path("/run/moorage")
    image: str = field(init=False)
    layer: str = field(init=False)

    @property
    def root(self) -> Path:
        return self.place / "node"

    @property
    def slurm(self) -> Path:
        return self.place / "slurm"

    @property
    def programs(self) -> Path:
        return self.place / "bin"

    @property
    def command(self) -> Path:
        """Moorage's own, as this site has it."""
        return self.place / "moorage"

    @property
    def configuration(self) -> Path:
        return self.place / "moorage.yaml"

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.slurm / "slurm.conf")}

    @property
    def graph(self) -> Path:
        return self.store / "images"

    @property
    def description(self) -> Path:
        name = base64.b64encode(f"sha256:{self.image}".encode()).decode()
        return self.graph / "overlay-images" / self.image / f"={name}"

    @property
    def motd(self) -> Path:
        return self.graph / "overlay" / self.layer / "diff" / "motd"

    def make(self) -> None:
        write(self.root, kernel_files(os.uname().release) | DESCRIPTION)
        open_devices(self.root)
        for process in ("self", "1", "55"):
            self.in_namespace(process, "mnt:[1]")
        self._make_units()
        self._make_slurm()
        self.programs.mkdir()
        for name in (*VERSIONS, *SILENT):
            self.program(name, VERSIONS.get(name, ""))
        self.configuration.write_text(CONFIGURATION)
        package = str(REPOSITORY / "plugin")
        self.command.write_text(COMMAND.format(python=sys.executable, package=package, place=str(self.place)))
        self.command.chmod(0o755)
        self.run.mkdir(mode=0o755)
        for private in (self.states, self.scratch, self.store, self.graph, self.store / "probes"):
            private.mkdir(mode=0o700, parents=True)
        self._make_image()

    def in_namespace(self, process: str, namespace: str) -> None:
        link = self.root / "proc" / process / "ns" / "mnt"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(namespace)

    def program(self, name: str, said: str, mode: int = 0o4755) -> None:
        """newuidmap and newgidmap are privileged, which harms none of the others."""
        program = self.programs / name
        program.unlink(missing_ok=True)
        program.write_text(f"#!/bin/sh\nprintf %s '{said}'\n")
        program.chmod(mode)

    def slurm_conf(self, old: str, new: str) -> None:
        file = self.slurm / "slurm.conf"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    def shim(self, release: str) -> None:
        (self.slurm / "moorage.so").write_bytes(b"\x7fELF moorage-shim " + release.encode() + b"\0")

    def configured(self, old: str, new: str) -> None:
        assert old in self.configuration.read_text()
        self.configuration.write_text(self.configuration.read_text().replace(old, new))

    def without_module(self, name: str) -> None:
        listed = self.root / "lib/modules" / os.uname().release / "modules.dep"
        listed.write_text(listed.read_text().replace(f"kernel/{name}.ko.xz:\n", ""))

    def _make_units(self) -> None:
        units = self.root / "etc/systemd/system"
        for unit in (REPOSITORY / "config").glob("moorage-*"):
            units.mkdir(parents=True, exist_ok=True)
            shutil.copy(unit, units)
        for target, names in ENABLED.items():
            (units / f"{target}.wants").mkdir()
            for name in names:
                (units / f"{target}.wants" / name).symlink_to(f"/etc/systemd/system/{name}")

    def _make_slurm(self) -> None:
        for hooks in ("prolog.d", "epilog.d"):
            (self.slurm / hooks).mkdir(parents=True)
            (self.slurm / hooks / "50-moorage").touch(mode=0o755)
        (self.slurm / "slurm.conf").write_text(SLURM_CONF.format(slurm=self.slurm))
        (self.slurm / "cgroup.conf").write_text("ConstrainDevices=yes\n")
        (self.slurm / "plugstack.conf").write_text(
            f"required {self.slurm}/moorage.so moorage=/opt/moorage/bin/moorage\n"
        )
        self.shim("24.11")

    def _make_image(self) -> None:
        """As Podman keeps one of a single layer with a single file."""
        tar = archives.layer(archives.Member("motd", data=MOTD))
        description = archives.config([tar])
        self.image = hashlib.sha256(description).hexdigest()
        self.layer = hashlib.sha256(b"layer").hexdigest()
        digest = f"sha256:{hashlib.sha256(tar).hexdigest()}"
        images, layers = self.graph / "overlay-images", self.graph / "overlay-layers"
        (images / self.image).mkdir(parents=True)
        layers.mkdir()
        (images / "images.json").write_text(json.dumps([{"id": self.image, "names": [IMAGE], "layer": self.layer}]))
        self.description.write_bytes(description)
        entry = {"id": self.layer, "diff-digest": digest, "diff-size": len(tar)}
        (layers / "layers.json").write_text(json.dumps([entry]))
        self.motd.parent.mkdir(parents=True)
        self.motd.write_bytes(MOTD)
        (layers / f"{self.layer}.tar-split.gz").write_bytes(gzip.compress(_recipe(tar)))


def _recipe(tar: bytes) -> bytes:
    """Everything but the content of its file, which begins after one header."""
    before, after = tar[:512], tar[512 + len(MOTD) :]
    assert tar[512 : 512 + len(MOTD)] == MOTD
    entries = (
        {"type": 2, "payload": base64.b64encode(before).decode()},
        {"type": 1, "name": "motd", "size": len(MOTD)},
        {"type": 2, "payload": base64.b64encode(after).decode()},
    )
    return "".join(json.dumps(entry) + "\n" for entry in entries).encode()


@contextmanager
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """In mounts of its own, with nothing of this machine where jobs have what is theirs."""
    with fresh(MOUNT):
        for place in ("/run", "/var/lib"):
            mounts.mount_tmpfs(Path(place), size=256 * MIB, inodes=100000, uid=0, gid=0, mode=0o755)
        PLACE.mkdir()
        made = Site(PLACE)
        made.make()
        monkeypatch.setattr(command, "PATH", str(made.programs))
        monkeypatch.setattr(load, "PLACE", made.configuration)
        yield made
