"""Checks of the kernel: version, cgroups, modules, devices, limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from moorage.node.factcache import Facts, stamp
from moorage.node.finding import Finding
from moorage.node.hostfiles import Node

OLDEST: Final = (5, 14)
CONTROLLERS: Final = frozenset({"cpu", "cpuset", "memory", "pids"})
CGROUPS: Final = "/sys/fs/cgroup"
SCOPES: Final = ("*.slice/*slurmstepd.scope", "*.slice/*.slice/*slurmstepd.scope")

# Rootless Podman uses this one only if it is loaded already; the others are loaded on first use.
LOADED: Final = ("overlay",)
AVAILABLE: Final = ("bridge", "fuse", "nf_tables", "overlay", "tun", "veth")
# Only jobs on several nodes need these.
SEVERAL_NODES: Final = ("nft_fwd_netdev", "vxlan")
DEVICES: Final = ("/dev/fuse", "/dev/net/tun")
MODULES_FILE: Final = "config/modules-load.d/moorage.conf"

# Many times what one node container and its pods need.
NAMESPACES: Final = {
    f"user/max_{kind}_namespaces": 256 for kind in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
}
# Per user. A kubelet and the programs of pods watch files, and each container has a keyring.
LIMITS: Final = {
    "fs/inotify/max_user_instances": 512,
    "fs/inotify/max_user_watches": 65536,
    "kernel/keys/maxkeys": 1000,
    "kernel/keys/maxbytes": 100000,
}
SYSCTL_FILE: Final = "config/sysctl.d/50-moorage.conf"
CONFINED: Final = "podman"


def check(node: Node, release: str, facts: Facts) -> Iterator[Finding]:
    yield from _age(release)
    yield from _cgroups(node)
    yield from _modules(node, release, facts)
    yield from _devices(node)
    yield from _sysctls(node)


def _age(release: str) -> Iterator[Finding]:
    found = re.match(r"(\d+)\.(\d+)", release)
    if not found or (int(found[1]), int(found[2])) < OLDEST:
        yield Finding("kernel", f"the kernel is {release}", "boot Linux 5.14 or newer", code="M-KERNEL-1")


def _cgroups(node: Node) -> Iterator[Finding]:
    if not node.has(f"{CGROUPS}/cgroup.controllers"):
        remedy = "boot with systemd.unified_cgroup_hierarchy=1"
        yield Finding("cgroup", f"{CGROUPS} is not the unified hierarchy (cgroup v2)", remedy, code="M-KERNEL-2")
        return
    scopes = [scope for pattern in SCOPES for scope in node.path(CGROUPS).glob(pattern)]
    lacking = [CONTROLLERS - set((scope / "cgroup.controllers").read_text().split()) for scope in scopes]
    if not lacking:
        remedy = "set ProctrackType=proctrack/cgroup and, in cgroup.conf, CgroupPlugin=cgroup/v2, and restart slurmd"
        yield Finding("cgroup", "slurmd has made no slurmstepd.scope", remedy, code="M-KERNEL-3")
    elif all(lacking):
        names = ", ".join(sorted(lacking[-1]))
        remedy = "let systemd delegate them (Delegate=yes), or enable them at boot (cgroup_enable=...)"
        yield Finding("cgroup", f"slurmstepd.scope lacks the controllers {names}", remedy, code="M-KERNEL-4")


def _modules(node: Node, release: str, facts: Facts) -> Iterator[Finding]:
    for name in LOADED:
        if name not in node.text("/proc/filesystems").split():
            yield Finding(
                "modules",
                f"the kernel module {name} is not loaded",
                f"modprobe {name}, at boot by {MODULES_FILE}",
                code="M-KERNEL-5",
            )
    for name in sorted(lacking(AVAILABLE, node, release, facts) - set(LOADED)):
        yield Finding(
            "modules",
            f"this kernel has no module {name}",
            "install the rest of the kernel's modules",
            code="M-KERNEL-6",
        )


def lacking(names: Iterable[str], node: Node, release: str, facts: Facts) -> set[str]:
    """The modules that are neither loaded nor installed."""
    there = {name for name in names if node.has(f"/sys/module/{name}")}
    # A kernel without loadable modules does not say what it was built with.
    if not node.has("/proc/modules") or there == set(names):
        return set()
    lists = [f"/lib/modules/{release}/modules.{kind}" for kind in ("builtin", "dep")]
    known = facts.recall("modules", stamp(*map(node.path, lists)), lambda: _listed("".join(map(node.text, lists))))
    return set(names) - there - set(known)


def _listed(lists: str) -> list[str]:
    """The modules in these lists of files, which may have a dash for an underscore."""
    return [name for name in (*AVAILABLE, *SEVERAL_NODES) if re.search(rf"/{name.replace('_', '[_-]')}\.ko\b", lists)]


def _devices(node: Node) -> Iterator[Finding]:
    for name in DEVICES:
        if not node.has(name):
            module = name.rpartition("/")[2]
            yield Finding(
                "devices", f"{name} is missing", f"modprobe {module}, at boot by {MODULES_FILE}", code="M-KERNEL-7"
            )
        elif node.path(name).stat().st_mode & 0o006 != 0o006:
            yield Finding(
                "devices", f"users may not open {name}", f"chmod 666 {name}, at boot by a udev rule", code="M-KERNEL-8"
            )


def _sysctls(node: Node) -> Iterator[Finding]:
    for name, least in (NAMESPACES | LIMITS).items():
        value = node.number(f"/proc/sys/{name}")
        if value is not None and value < least:
            key = name.replace("/", ".")
            yield Finding(
                "sysctl", f"{key} is {value}", f"set it to {least} or more, as {SYSCTL_FILE} does", code="M-KERNEL-9"
            )
    if node.number("/proc/sys/kernel/unprivileged_userns_clone") == 0:
        remedy = f"set it to 1, as {SYSCTL_FILE} does"
        yield Finding("sysctl", "kernel.unprivileged_userns_clone is 0", remedy, code="M-KERNEL-10")


def apparmor(node: Node) -> Iterator[Finding]:
    """Ubuntu 24.04 lets only programs with a profile of their own make user namespaces."""
    restricted = node.number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    profiles = {line.split(" ")[0] for line in node.text("/sys/kernel/security/apparmor/profiles").splitlines()}
    if restricted and CONFINED not in profiles:
        cause = "AppArmor keeps Podman from making user namespaces"
        yield Finding(
            "apparmor",
            cause,
            "load the profile /etc/apparmor.d/podman, or set kernel.apparmor_restrict_unprivileged_userns to 0",
            code="M-KERNEL-11",
        )
