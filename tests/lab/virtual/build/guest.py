"""The operating system of the lab's nodes: Debian with Slurm and rootless Podman, as one disk image for all of them."""

from __future__ import annotations

import email.utils
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import run

from . import installation, mirror, node_store, tools
from .cache import cached
from .chroot import run_in
from .progress import phase

SYSTEM = (
    "acl", "apparmor", "attr", "busybox-static", "ca-certificates", "curl", "dbus", "dbus-user-session", "dnsmasq-base",
    "e2fsprogs", "file", "iperf3", "iproute2", "iptables", "iputils-ping", "jq", "kmod", "less", "libpam-systemd",
    "linux-image-cloud-amd64", "nfs-common", "nfs-kernel-server", "nftables", "openssh-server", "procps", "psmisc",
    "quota", "socat", "strace", "systemd", "systemd-sysv", "tcpdump", "udev", "xz-utils",
)  # fmt: skip
SLURM = ("mariadb-server", "munge", "slurm-client", "slurmctld", "slurmd", "slurmdbd")
PODMAN = (
    "aardvark-dns", "catatonit", "crun", "fuse-overlayfs", "netavark", "passt", "podman", "runc", "slirp4netns",
    "uidmap",
)  # fmt: skip
# What the product needs on a node, and what its C part is built with.
PYTHON = (
    "python3", "python3-apt", "python3-psutil", "python3-pyroute2", "python3-systemd", "python3-venv", "python3-yaml",
)  # fmt: skip
BUILD = ("gcc", "libc6-dev", "libslurm-dev", "make")
PACKAGES = SYSTEM + SLURM + PODMAN + PYTHON + BUILD
SHOWN = (
    "slurmd", "podman", "crun", "runc", "passt", "slirp4netns", "netavark", "systemd", "python3",
    "linux-image-cloud-amd64",
)  # fmt: skip

LEFT_OUT = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")
FILES = Path(__file__).resolve().parents[2] / "guest"
DISK_SIZE = "24G"
SCRATCH_SIZE = "24G"
LIMIT = 900.0


@dataclass(frozen=True)
class Guest:
    suite: str
    disk: Path
    scratch: Path
    kernel: Path
    initrd: Path
    key: Path
    versions: dict[str, str]
    built: str


def guest(suite: str, archive: Callable[[], Path], *, refresh: bool = False, bare: bool = False) -> Guest:
    """Everything a guest of `suite` starts from; `refresh` takes what Debian's archive has now.

    The archive of the node image is asked for late: it is being built meanwhile. A `bare` guest has no Moorage.
    """
    packages = package_tree(suite, refresh=refresh)
    node = configured(packages)
    return Guest(
        suite=suite,
        disk=(bare_image(node) if bare else root_image(node, archive())) / "disk",
        scratch=scratch_image() / "disk",
        kernel=node / "kernel",
        initrd=node / "initrd",
        key=node / "key",
        versions=json.loads((packages / "versions.json").read_text()),
        built=(packages / "date").read_text(),
    )


def package_tree(suite: str, *, refresh: bool = False) -> Path:
    """Packages as of the first build or the last refresh: `tree`, `date`, `versions.json`."""

    def build(place: Path) -> None:
        with phase(f"installing the guest's packages (Debian {suite})"):
            _bootstrap(suite, place)
        (place / "date").write_text(archive_date(place / "InRelease"))
        (place / "versions.json").write_text(json.dumps(versions(place / "tree/var/lib/dpkg/status")))

    return cached(f"guest-packages-{suite}", (suite, *PACKAGES, *LEFT_OUT), build, renew=refresh)


def configured(packages: Path) -> Path:
    """The node that these packages become: `tree`, `kernel`, `initrd`, and the `key` that opens it."""

    def build(place: Path) -> None:
        with phase("configuring the guest"):
            _copy(packages / "tree", place / "tree")
            lay_over(FILES / "files", place / "tree")
            run_in(place / "tree", FILES / "customize", log=place.with_suffix(".log"))
            for name in ("kernel", "initrd", "key"):
                shutil.move(place / "tree/boot" / name, place / name)

    return cached("guest-node", (packages.name, packages / "tree/var/lib/dpkg/status", FILES), build)


def root_image(node: Path, archive: Path) -> Path:
    """`node`'s tree with Moorage installed in it, and the node image in its store, as a file system: `disk`."""

    def build(place: Path) -> None:
        tree = place / "tree"
        _copy(node / "tree", tree)
        installation.install(tree, place)
        store = node_store.filled(node.name, tree, archive)
        (tree / node_store.PLACE).parent.mkdir(exist_ok=True)
        _copy(store, tree / node_store.PLACE)
        with phase("making the guest's disk image"):
            _file_system(place / "disk", DISK_SIZE, "-L", "lab-root", "-d", str(tree))
        shutil.rmtree(tree)

    return cached("guest-disk", (node.name, archive.parent.name, DISK_SIZE, *installation.INPUTS), build)


def bare_image(node: Path) -> Path:
    """`node`'s tree as it is, a node to which Moorage is still to come: `disk`."""

    def build(place: Path) -> None:
        with phase("making the disk image of a bare guest"):
            _file_system(place / "disk", DISK_SIZE, "-L", "lab-root", "-d", str(node / "tree"))

    return cached("guest-bare", (node.name, DISK_SIZE), build)


def _copy(tree: Path, place: Path) -> None:
    run(["cp", "-a", "--reflink=auto", tree, place], limit=LIMIT)


def scratch_image() -> Path:
    """An empty file system for a node's scratch space, ready for project quotas: `disk`."""

    def build(place: Path) -> None:
        _file_system(
            place / "disk", SCRATCH_SIZE, "-L", "lab-scratch", "-O", "project,quota", "-E", "quotatype=prjquota"
        )

    return cached("guest-scratch", (SCRATCH_SIZE,), build)


def _bootstrap(suite: str, place: Path) -> None:
    # A frozen mirror's unstable is past its week of validity, and its date is known from the cache anyway.
    options = [*mirror.apt_options(), 'Acquire::Check-Valid-Until "false"']
    tools.tools().run(
        [
            "mmdebstrap", "--mode=root", "--variant=minbase",
            *(f"--aptopt={option}" for option in options),
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT),
            f"--include={','.join(PACKAGES)}",
            f'--customize-hook=cat "$1"/var/lib/apt/lists/*InRelease >{place}/InRelease',
            suite, str(place / "tree"), mirror.debian_mirror(),
        ],
        env={"INITRD": "No", "DEBIAN_FRONTEND": "noninteractive"}, limit=tools.HOUR, log=place.with_suffix(".log"),
    )  # fmt: skip


def lay_over(source: Path, tree: Path) -> None:
    """Put the files below `source` into `tree` as root's, whatever owner and umask the checkout has."""
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        target = tree / file.relative_to(source)
        run(["install", "-D", "-m", "755" if file.stat().st_mode & 0o100 else "644", file, target])


def _file_system(image: Path, size: str, *options: str) -> None:
    # Without the last option the guest's kernel writes zeros over every inode table, which the file is full of already.
    fresh = ["-t", "ext4", "-m", "0", "-E", "assume_storage_prezeroed=1"]
    tools.tools().run(["mke2fs", "-q", *fresh, *options, str(image), size], limit=LIMIT)


def archive_date(release: Path) -> str:
    """The day of the archive's state, from its signed index."""
    line = next(line for line in release.read_text().splitlines() if line.startswith("Date:"))
    return email.utils.parsedate_to_datetime(line.removeprefix("Date:").strip()).date().isoformat()


def versions(status: Path) -> dict[str, str]:
    """The versions of the packages worth showing, from dpkg's own records."""
    return {name: version for name, version in _installed(status.read_text()) if name in SHOWN}


def _installed(status: str) -> Iterator[tuple[str, str]]:
    for block in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != " ")
        if fields:
            yield fields["Package"], fields["Version"]
