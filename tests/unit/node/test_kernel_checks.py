"""What a kernel must offer: one broken node per line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.node import kernel_checks
from moorage.node.factcache import Facts
from moorage.node.hostfiles import Node
from support import site
from support.site import RELEASE, SCOPE, kernel_files, open_devices

ROOT = Path(__file__).parents[3]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node on which everything is right."""
    root = tmp_path / "node"
    site.write(root, kernel_files())
    open_devices(root)
    return Node(root)


def found(node: Node, release: str = RELEASE) -> list[str]:
    return [str(finding) for finding in (*kernel_checks.check(node, release, Facts()), *kernel_checks.apparmor(node))]


def test_a_good_node(node: Node) -> None:
    assert found(node) == []


@pytest.mark.parametrize("release", ["5.14.0-427.el9.x86_64", "6.1.0", "10.0-rc1"])
def test_kernels_that_are_new_enough(node: Node, release: str) -> None:
    (node.root / "lib/modules" / RELEASE).rename(node.root / "lib/modules" / release)
    assert found(node, release) == []


@pytest.mark.parametrize("release", ["5.13.19", "4.18.0-553.el8.x86_64", "unknown"])
def test_kernels_that_are_too_old(node: Node, release: str) -> None:
    assert f"the kernel is {release}: boot Linux 5.14 or newer" in found(node, release)


def write(name: str, text: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    return change


def remove(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).unlink()


@pytest.mark.parametrize(
    ("breakage", "words"),
    [
        (
            remove("sys/fs/cgroup/cgroup.controllers"),
            "/sys/fs/cgroup is not the unified hierarchy (cgroup v2): boot with",
        ),
        (
            lambda root: (root / SCOPE).rename(root / "elsewhere"),
            "slurmd has made no slurmstepd.scope: set ProctrackType=",
        ),
        (
            write(f"{SCOPE}/cgroup.controllers", "cpu io\n"),
            "slurmstepd.scope lacks the controllers cpuset, memory, pids: ",
        ),
        (write("proc/filesystems", "nodev\tnooverlay\n"), "the kernel module overlay is not loaded: modprobe overlay"),
        (
            write(f"lib/modules/{RELEASE}/modules.builtin", "kernel/net/xbridge.ko\n"),
            "this kernel has no module bridge: ",
        ),
        (write(f"lib/modules/{RELEASE}/modules.dep", "kernel/fuse.ko:\n"), "this kernel has no module nf_tables: "),
        (remove("dev/fuse"), "/dev/fuse is missing: modprobe fuse"),
        (remove("dev/net/tun"), "/dev/net/tun is missing: modprobe tun"),
        (lambda root: (root / "dev/fuse").chmod(0o660), "users may not open /dev/fuse: chmod 666 /dev/fuse"),
        (write("proc/sys/user/max_user_namespaces", "0\n"), "user.max_user_namespaces is 0: set it to 256 or more"),
        (write("proc/sys/user/max_net_namespaces", "10\n"), "user.max_net_namespaces is 10: set it to 256 or more"),
        (
            write("proc/sys/fs/inotify/max_user_instances", "128\n"),
            "fs.inotify.max_user_instances is 128: set it to 512",
        ),
        (
            write("proc/sys/fs/inotify/max_user_watches", "8192\n"),
            "fs.inotify.max_user_watches is 8192: set it to 65536",
        ),
        (write("proc/sys/kernel/keys/maxkeys", "200\n"), "kernel.keys.maxkeys is 200: set it to 1000 or more"),
        (write("proc/sys/kernel/keys/maxbytes", "20000\n"), "kernel.keys.maxbytes is 20000: set it to 100000 or more"),
        (
            write("proc/sys/kernel/unprivileged_userns_clone", "0\n"),
            "kernel.unprivileged_userns_clone is 0: set it to 1",
        ),
    ],
)
def test_a_bad_node_is_told_in_one_line(node: Node, breakage: Callable[[Path], object], words: str) -> None:
    breakage(node.root)
    (line,) = found(node)
    assert line.startswith(words)
    assert "\n" not in line


def test_a_scope_of_another_name_and_place_is_found(node: Node) -> None:
    other = node.root / "sys/fs/cgroup/slurm.slice/nodes.slice/n1_slurmstepd.scope"
    other.parent.mkdir(parents=True)
    (node.root / SCOPE).rename(other)
    assert found(node) == []


def test_a_kernel_without_modules_has_what_it_has(node: Node) -> None:
    (node.root / "proc/modules").unlink()
    (node.root / f"lib/modules/{RELEASE}/modules.dep").unlink()
    assert found(node) == []


@pytest.mark.parametrize(
    ("restricted", "profiles", "bad"),
    [
        ("1", "unconfined (x)\n", True),
        ("1", "podman (unconfined)\n", False),
        ("1", "xpodman (x)\n", True),
        ("0", "", False),
        ("", "", False),
    ],
)
def test_ubuntus_restriction(node: Node, restricted: str, profiles: str, bad: bool) -> None:
    write("proc/sys/kernel/apparmor_restrict_unprivileged_userns", restricted)(node.root)
    write("sys/kernel/security/apparmor/profiles", profiles)(node.root)
    expected = (
        ["AppArmor keeps Podman from making user namespaces: load the profile /etc/apparmor.d/podman"] if bad else []
    )
    assert [line.partition(", or ")[0] for line in found(node)] == expected


def test_the_lists_of_modules_are_read_once(node: Node) -> None:
    facts = Facts()
    assert list(kernel_checks.check(node, RELEASE, facts)) == []
    assert facts.known["modules"]["value"] == ["bridge", "fuse", "nf_tables", "nft_fwd_netdev", "vxlan"]


def test_what_we_ship_is_enough() -> None:
    shipped = dict(
        line.replace(" ", "").lstrip("-").split("=")
        for line in (ROOT / kernel_checks.SYSCTL_FILE).read_text().splitlines()
        if line and not line.startswith("#")
    )
    for name, least in (kernel_checks.NAMESPACES | kernel_checks.LIMITS).items():
        assert int(shipped[name.replace("/", ".")]) >= least
    modules = (ROOT / kernel_checks.MODULES_FILE).read_text().split()
    assert set(modules) > {*kernel_checks.AVAILABLE, *kernel_checks.SEVERAL_NODES, *kernel_checks.LOADED, "loop"}
