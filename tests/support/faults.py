"""Ways to break a node, each with how the one finding begins that comes of it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.doctor import clock
from moorage.linux import mounts
from moorage.node import programs
from moorage.node.config.values import MIB
from moorage.node.uplink_speed import Record, Speed, Spread
from moorage.root.cleanup import trash
from moorage.root.state import State
from support.node import JOB, LIMITS
from support.site import IMAGE, ROUTES, SCOPE, Site

READ_ONLY = 1
EARLIER = "00000000-0000-0000-0000-000000000000"

Break = Callable[[Site, pytest.MonkeyPatch], object]


def node(name: str, text: str) -> Break:
    """One of the node's own files says something else."""
    return lambda site, _: (site.root / name).write_text(text)


def without(name: str) -> Break:
    return lambda site, _: (site.root / name).unlink()


def slurm(old: str, new: str) -> Break:
    return lambda site, _: site.slurm_conf(old, new)


def says(name: str, words: str) -> Break:
    return lambda site, _: site.program(name, words)


def gone(*names: str) -> Break:
    def do(site: Site, _: object) -> None:
        for name in names:
            (site.programs / name).unlink()

    return do


def setting(old: str, new: str) -> Break:
    return lambda site, _: site.configured(old, new)


def mode(name: str, bits: int) -> Break:
    return lambda site, _: (site.place / name).chmod(bits)


def small(place: str, size: int) -> Break:
    return lambda *_: mounts.mount_tmpfs(Path(place), size=size, inodes=10000, uid=0, gid=0, mode=0o700)


def old_kernel(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.uname()
    modules = site.root / "lib/modules"
    (modules / here.release).rename(modules / "5.10.0")
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*here[:2], "5.10.0", *here[3:])))


def old_slurm(site: Site, _: object) -> None:
    site.program("slurmd", "slurm 23.02.7")
    site.shim("23.02")


def store_elsewhere(site: Site, kind: str) -> None:
    """The same store on another file system."""
    aside = site.place / "aside"
    shutil.move(site.store, aside)
    site.store.mkdir()
    if kind == "overlay":
        for name in ("upper", "work"):
            (site.place / name).mkdir()
        options = f"lowerdir={aside},upperdir={site.place}/upper,workdir={site.place}/work"
        mounts.mount("overlay", "overlay", site.store, options=options)
    else:
        mounts.mount(kind, kind, site.store)
        shutil.copytree(aside, site.store, dirs_exist_ok=True)
    site.store.chmod(0o700)


def store_without_mapping(view: str) -> Break:
    """On a file system that has never heard of it."""

    def do(site: Site, _: object) -> None:
        store_elsewhere(site, "ramfs")
        site.configured("view: copy", f"view: {view}")

    return do


def small_packets(site: Site, _: object) -> None:
    site.configured("scratch:", "fabric: {interface: eth0}\nscratch:")
    (site.root / "sys/class/net/eth0/mtu").write_text("1300\n")


def scratch_file(site: Site, _: object) -> None:
    site.scratch.rmdir()
    site.scratch.touch()


def another_image(name: str) -> Break:
    def do(site: Site, _: object) -> None:
        site.renamed(name)
        site.configured(IMAGE, name)

    return do


def archive_missing(site: Site, _: object) -> None:
    site.configured(IMAGE, "localhost/other:v1.36.3")
    site.configured("kubernetes: {", "kubernetes: {archive: /run/site/image.tar, ")


def masked(site: Site, _: object) -> None:
    unit = site.root / "etc/systemd/system/moorage-warden@.service"
    unit.unlink()
    unit.symlink_to("/dev/null")


def keeps_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    wants = site.root / "etc/systemd/system/multi-user.target.wants"
    (wants / "chrony.service").symlink_to("/usr/lib/systemd/system/chrony.service")
    monkeypatch.setattr(clock, "in_step", lambda: False)


def dead_job(site: Site, _: object) -> None:
    State.begin(JOB, LIMITS).changed(boot=EARLIER)


def old_trash(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.scratch / trash.NAME / "17.abc").mkdir(parents=True)
    later = time.time() + 2 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: later)


def mount_of_nobody(site: Site, _: object) -> None:
    (site.run / "17").mkdir()
    mounts.mount_tmpfs(site.run / "17", size=MIB, inodes=100, uid=0, gid=0, mode=0o711)


def feature(text: str) -> Break:
    def do(site: Site, _: object) -> None:
        (site.place / "features.d").mkdir()
        (site.place / "features.d" / "tape.yaml").write_text(text)

    return do


def unconstrained(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    feature("gres: tape\ndevices: [/dev/tape%]\n")(site, monkeypatch)
    (site.slurm / "cgroup.conf").write_text("CgroupPlugin=cgroup/v2\nConstrainDevices=no\n")


def ruled(rule: str, enforced: str = "") -> Break:
    def do(site: Site, _: object) -> None:
        site.configured("scratch:", f"policy: {{{rule}}}\nscratch:")
        site.slurm_conf("PrologTimeout", f"AccountingStorageEnforce={enforced}\nPrologTimeout")

    return do


FAULTS: dict[str, tuple[Break, str]] = {
    # what the site has written
    "a feature that is none": (
        feature("gres: tape\n"),
        "features: /run/site/features.d/tape.yaml:1: which job has tape, only its devices tell",
    ),
    "any account": (ruled("accounts: [physics]"), "policy: policy.accounts refuses nobody: Slurm does not check"),
    "an old Slurm tells no QOS": (ruled("qos: [normal]", "qos"), "policy: policy.qos refuses every job: before"),
    # the shim, and Slurm
    "plugstack without the shim": (
        lambda site, _: (site.slurm / "plugstack.conf").write_text("# nothing\n"),
        "shim: plugstack.conf has no line for moorage.so",
    ),
    "the shim gone": (
        lambda site, _: (site.slurm / "moorage.so").unlink(),
        "shim: the shim /run/site/slurm/moorage.so",
    ),
    "another plug-in under its name": (
        lambda site, _: (site.slurm / "moorage.so").write_bytes(b"\x7fELF"),
        "shim: /run/site/slurm/moorage.so is not Moorage's shim",
    ),
    "the shim by a relative path": (
        lambda site, _: (site.slurm / "plugstack.conf").write_text("required moorage.so\n"),
        "shim: plugstack.conf names the shim as moorage.so",
    ),
    "a mute slurmd": (says("slurmd", ""), "shim: the release of this node's Slurm is unknown"),
    "a slurm.conf that is none": (
        lambda site, _: (site.slurm / "slurm.conf").write_text("ClusterName=site\n"),
        "slurm: /run/site/slurm/slurm.conf names neither prologs nor plug-ins",
    ),
    "the shim of another release": (
        lambda site, _: site.shim("23.11"),
        "shim: /run/site/slurm/moorage.so was built for Slurm 23.11 and this node runs 24.11",
    ),
    "an old Slurm": (old_slurm, "slurm: this node runs slurm 23.02.7"),
    "another ProctrackType": (
        slurm("proctrack/cgroup", "proctrack/linuxproc"),
        "slurm: /run/site/slurm/slurm.conf has ProctrackType=proctrack/linuxproc",
    ),
    "no task/cgroup": (slurm("task/cgroup,", ""), "slurm: /run/site/slurm/slurm.conf has TaskPlugin=task/affinity"),
    "no Epilog": (slurm("Epilog=", "#Epilog="), "slurm: no Epilog= of /run/site/slurm/slurm.conf runs 50-moorage"),
    "no Prolog": (slurm("Prolog=", "#Prolog="), "slurm: no Prolog= of /run/site/slurm/slurm.conf runs 50-moorage"),
    "an Epilog that is none": (
        mode("slurm/epilog.d/50-moorage", 0o644),
        "slurm: /run/site/slurm/epilog.d/50-moorage cannot be executed",
    ),
    "a Prolog that is none": (
        mode("slurm/prolog.d/50-moorage", 0o644),
        "slurm: /run/site/slurm/prolog.d/50-moorage cannot be executed",
    ),
    "too little time for the Prolog": (
        slurm("PrologTimeout=600", "PrologTimeout=500"),
        "slurm: /run/site/slurm/slurm.conf has PrologTimeout=500, and our Prolog may take 500 s",
    ),
    "too little time for the Epilog": (
        slurm("EpilogTimeout=120", "PrologEpilogTimeout=30"),
        "slurm: /run/site/slurm/slurm.conf has PrologEpilogTimeout=30, and our Epilog may take 60 s",
    ),
    # the kernel, and systemd
    "no systemd": (
        lambda site, _: shutil.rmtree(site.root / "run/systemd/system"),
        "systemd: this node was not booted with systemd",
    ),
    "mounts of our own": (
        lambda site, _: site.in_namespace("self", "mnt:[2]"),
        "systemd: slurmd runs in a mount namespace of its own",
    ),
    "mounts of slurmd's own": (
        lambda site, _: site.in_namespace("55", "mnt:[2]"),
        "systemd: slurmd runs in a mount namespace of its own",
    ),
    "an old kernel": (old_kernel, "kernel: the kernel is 5.10.0"),
    "cgroup v1": (without("sys/fs/cgroup/cgroup.controllers"), "cgroup: /sys/fs/cgroup is not the unified hierarchy"),
    "no cgroups of Slurm's": (
        lambda site, _: shutil.rmtree(site.root / SCOPE),
        "cgroup: slurmd has made no slurmstepd.scope",
    ),
    "a controller missing": (
        node(f"{SCOPE}/cgroup.controllers", "cpu memory pids\n"),
        "cgroup: slurmstepd.scope lacks the controllers cpuset",
    ),
    "overlay not loaded": (node("proc/filesystems", "\text4\n"), "modules: the kernel module overlay is not loaded"),
    "a module missing": (
        lambda site, _: shutil.rmtree(site.root / "sys/module/veth"),
        "modules: this kernel has no module veth",
    ),
    "no /dev/fuse": (without("dev/fuse"), "devices: /dev/fuse is missing"),
    "/dev/net/tun for root alone": (mode("node/dev/net/tun", 0o600), "devices: users may not open /dev/net/tun"),
    "few user namespaces": (node("proc/sys/user/max_user_namespaces", "0\n"), "sysctl: user.max_user_namespaces is 0"),
    "few keys": (node("proc/sys/kernel/keys/maxkeys", "200\n"), "sysctl: kernel.keys.maxkeys is 200"),
    "user namespaces forbidden": (
        node("proc/sys/kernel/unprivileged_userns_clone", "0\n"),
        "sysctl: kernel.unprivileged_userns_clone is 0",
    ),
    "user namespaces confined": (
        lambda site, _: (
            (site.root / "proc/sys/kernel/apparmor_restrict_unprivileged_userns").write_text("1\n"),
            (site.root / "sys/kernel/security/apparmor/profiles").write_text("other (enforce)\n"),
        ),
        "apparmor: AppArmor keeps Podman from making user namespaces",
    ),
    "the clock wrong": (
        lambda _, monkeypatch: monkeypatch.setattr(time, "time", lambda: 0.0),
        "clock: the clock says 1970-01-01, and Moorage was installed on ",
    ),
    # programs
    "no Podman": (gone("podman"), "podman: Podman is not installed"),
    "an old Podman": (says("podman", "podman version 4.3.1"), "podman: /run/site/bin/podman is podman version 4.3.1"),
    "a mute Podman": (says("podman", ""), "podman: /run/site/bin/podman is silent about its version"),
    "no runtime": (gone("crun"), "runtime: this node has no container runtime"),
    "an old crun": (says("crun", "crun version 1.8.1"), "runtime: this node has crun version 1.8.1"),
    "a program missing": (gone("conmon"), "programs: conmon is not installed"),
    "no privilege to map ids": (mode("bin/newuidmap", 0o755), "programs: /run/site/bin/newuidmap has no privilege"),
    "an old Python": (
        lambda _, monkeypatch: monkeypatch.setattr(programs, "OLDEST_PYTHON", (99, 0)),
        "python: Python is ",
    ),
    "no policy": (without("etc/containers/policy.json"), "podman: there is no /etc/containers/policy.json"),
    "no way to the outside": (gone("pasta", "slirp4netns"), "uplink: no uplink can be used"),
    # who has which ids
    "ranges that meet": (
        node("etc/subuid", "alice:100000:65536\nbob:165535:65536\n"),
        "subuid: /etc/subuid: the uids 165535-231070 of bob meet 100000-165535 of alice",
    ),
    "a range with a real user in it": (
        node("etc/passwd", "root:x:0:0::/:\ncarol:x:100007:100007::/:\n"),
        "subuid: /etc/subuid: the uids 100000-165535 of alice contain 100007, which is a real uid",
    ),
    "a range with a real group in it": (
        node("etc/group", "root:x:0:\nbig:x:170000:\n"),
        "subgid: /etc/subgid: the gids 165536-231071 of bob contain 170000, which is a real gid",
    ),
    # what is ours
    "a configuration without sense": (
        lambda site, _: site.configuration.write_text("scratch: [\n"),
        "configuration: /run/site/moorage.yaml:2: this is not YAML",
    ),
    "a configuration that others write": (
        mode("moorage.yaml", 0o666),
        "configuration: /run/site/moorage.yaml can be written by others than root",
    ),
    "an unknown setting": (
        setting("scratch:", "nodes: 2\nscratch:"),
        "configuration: /run/site/moorage.yaml:1: there is no key nodes",
    ),
    "a unit missing": (
        without("etc/systemd/system/moorage-warden@.service"),
        "units: moorage-warden@.service is not installed",
    ),
    "a unit masked": (masked, "units: moorage-warden@.service is masked"),
    "a unit not enabled": (
        without("etc/systemd/system/timers.target.wants/moorage-sweep.timer"),
        "units: moorage-sweep.timer is not enabled",
    ),
    "a unit failed": (
        says("systemctl", "Id=moorage-trash.service\nActiveState=failed\nNeedDaemonReload=no\n"),
        "units: moorage-trash.service has failed",
    ),
    "a timer that nobody has started": (
        says("systemctl", "Id=moorage-sweep.timer\nActiveState=inactive\nNeedDaemonReload=no\nUnitFileState=enabled\n"),
        "units: moorage-sweep.timer is enabled and not running",
    ),
    "a unit that systemd has not read": (
        says("systemctl", "Id=moorage-sweep.timer\nActiveState=active\nNeedDaemonReload=yes\n"),
        "units: moorage-sweep.timer has changed since systemd read it",
    ),
    "scratch gone": (
        lambda site, _: site.scratch.rmdir(),
        "scratch: scratch.path: there is no /var/lib/moorage/scratch",
    ),
    "scratch is a file": (
        scratch_file,
        "scratch: scratch.path: /var/lib/moorage/scratch is not a directory",
    ),
    "scratch for all to write": (
        lambda site, _: site.scratch.chmod(0o777),
        "scratch: scratch.path: others than root can change /var/lib/moorage/scratch",
    ),
    "scratch on ramfs": (
        lambda site, _: mounts.mount("ramfs", "ramfs", site.scratch, options="mode=700"),
        "scratch: scratch.path: /var/lib/moorage/scratch lies on ramfs",
    ),
    "scratch read-only": (
        lambda site, _: mounts.mount("tmpfs", "tmpfs", site.scratch, READ_ONLY, "mode=700"),
        "scratch: scratch.path: /var/lib/moorage/scratch is mounted read-only",
    ),
    "no inodes": (
        lambda site, _: mounts.mount_tmpfs(site.scratch, size=128 * MIB, inodes=3, uid=0, gid=0, mode=0o700),
        "scratch: 2 inodes are free on /var/lib/moorage/scratch and a job's scratch needs 4096",
    ),
    "no project quotas": (
        setting("kind: directory", "kind: project"),
        "scratch: /var/lib (tmpfs) keeps no project quotas",
    ),
    "no mkfs.ext4": (
        setting("kind: directory", "kind: loop"),
        "scratch: this node has no mkfs.ext4",
    ),
    "scratch open": (
        lambda site, _: site.scratch.chmod(0o711),
        "scratch: scratch.path: others than root can enter /var/lib/moorage/scratch",
    ),
    "scratch full": (small("/var/lib/moorage/scratch", MIB), "scratch: 1 MiB are free on "),
    "states open": (
        lambda site, _: site.states.chmod(0o755),
        "state: the jobs' states: others than root can enter /var/lib/moorage/jobs",
    ),
    "no room for states": (
        small("/var/lib/moorage/jobs", MIB // 2),
        "state: the disk of /var/lib/moorage/jobs is full",
    ),
    # images
    "the store open": (
        lambda site, _: site.store.chmod(0o755),
        "store: /var/lib/moorage/store is not root's alone",
    ),
    "the store on an overlay": (
        lambda site, _: store_elsewhere(site, "overlay"),
        "store: the store /var/lib/moorage/store lies on an overlay",
    ),
    "the store where owners cannot be mapped": (
        store_without_mapping("idmap"),
        "store: store.view is idmap, and mapped mounts do not work here",
    ),
    "the list of images damaged": (
        lambda site, _: (site.graph / "overlay-images/images.json").write_text("{"),
        "store: the list of images in /var/lib/moorage/store/images is damaged",
    ),
    "a description damaged": (
        lambda site, _: site.description.write_bytes(site.description.read_bytes().replace(b"amd64", b"arm64")),
        f"store: image {IMAGE}: its description is not the one it came with",
    ),
    "the list of layers damaged": (
        lambda site, _: (site.graph / "overlay-layers/layers.json").write_text("[3]"),
        f"store: image {IMAGE}: its description cannot be understood",
    ),
    "a layer lost": (
        lambda site, _: shutil.rmtree(site.motd.parent),
        f"store: image {IMAGE}: layer dac1d7cfa950 has lost its files",
    ),
    # clusters
    "no node image": (
        setting(IMAGE, "localhost/other:v1.36.3"),
        "kubernetes: the store has no image localhost/other:v1.36.3",
    ),
    "a node image of no version": (
        another_image("localhost/node:latest"),
        "kubernetes: the tag of node image localhost/node:latest names no version",
    ),
    "an old node image": (
        another_image("localhost/node:v1.31.0"),
        "kubernetes: localhost/node:v1.31.0 is too old: its API cannot be closed to strangers",
    ),
    "a mute kind": (says("kind", ""), "kubernetes: /run/site/bin/kind is silent about its version"),
    "no archive of it": (archive_missing, "kubernetes: kubernetes.archive: there is no /run/site/image.tar"),
    "no kind": (gone("kind"), "kubernetes: there is no program kind"),
    "another kind than was named": (
        setting("kubernetes: {", "kubernetes: {kind: /opt/none/kind, "),
        "kubernetes: there is no program /opt/none/kind",
    ),
    "an old kind": (says("kind", "kind version 0.29.0"), "kubernetes: /run/site/bin/kind is kind version 0.29.0"),
    # what is left of jobs
    "a dead job": (dead_job, "leftovers: job 17 has not been cleaned up: the node has booted since"),
    "a job that nobody understands": (
        lambda site, _: (site.states / "17.json").write_text("?"),
        "leftovers: /var/lib/moorage/jobs/17.json cannot be understood",
    ),
    "scratch of no job": (
        lambda site, _: (site.scratch / "17.img").touch(),
        "leftovers: /var/lib/moorage/scratch/17.img is left of a job that has no state here",
    ),
    "a mount of no job": (mount_of_nobody, "leftovers: /run/moorage/17 is mounted, and that job has no state here"),
    "files that nobody removes": (old_trash, "leftovers: 1 ended job(s) still have files in "),
}


def measured_on_another_kernel(*_: object) -> None:
    nothing = Spread(1, 1, 1)
    Record("5.14.0", Speed(nothing, nothing, nothing), {}, {}).save()


def on_several(cause: str) -> str:
    return f"several nodes: jobs on several nodes are refused here: {cause}"


# No fault: jobs start, on one node at least.
ADVICE: dict[str, tuple[Break, str]] = {
    "the store where each user copies": (store_without_mapping("auto"), "store: mapped mounts do not work here"),
    "an old kubectl": (
        says("kubectl", "Client Version: v1.34.1"),
        "kubernetes: kubectl says Client Version: v1.34.1, which is too far from Kubernetes 1.36.3",
    ),
    "a kubectl of another age": (
        says("kubectl", "Client Version: version.Info{Major:2, Minor:36, GitVersion:v2.36.1}"),
        "kubernetes: kubectl says Client Version: ",
    ),
    "a clock that is not right yet": (
        keeps_time,
        "clock: this node's clock is not synchronized yet",
    ),
    "nodes that are not prepared in time": (
        slurm("PrologFlags=Contain", "PrologFlags=NoHold"),
        on_several("/run/site/slurm/slurm.conf lacks PrologFlags=Alloc"),
    ),
    "nobody counts what containers use": (
        slurm("jobacct_gather/cgroup", "jobacct_gather/linux"),
        "slurm: /run/site/slurm/slurm.conf has JobAcctGatherType=jobacct_gather/linux, so sacct does not count",
    ),
    "devices for every job": (
        unconstrained,
        "slurm: /run/site/slurm/cgroup.conf lacks ConstrainDevices=yes, so jobs can open devices of other jobs",
    ),
    "no VXLAN": (
        lambda site, _: site.without_module("drivers/net/vxlan/vxlan"),
        on_several("this kernel has no module vxlan"),
    ),
    "no forwarding of frames": (
        lambda site, _: site.without_module("net/netfilter/nft_fwd_netdev"),
        on_several("this kernel has no module nft_fwd_netdev"),
    ),
    "everybody's ports": (
        node("proc/sys/net/ipv4/ip_unprivileged_port_start", "1000\n"),
        on_several("fabric.port is 339 and fabric.source_ports are 600-1023, and ports from 1000 up are open to unpri"),
    ),
    "a route to the containers": (
        node("proc/net/route", ROUTES + "eth1\t0007590A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"),
        on_several("this node has a route to 10.89.7.0/24, and containers would have 10.89.0.0/16"),
    ),
    "a route to the pods": (
        node("proc/net/route", ROUTES + "eth1\t0001F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"),
        "kubernetes: this node has a route to 10.244.1.0/24, and containers would have 10.244.0.0/16: choose another "
        "kubernetes.pods",
    ),
    "a route to all that Podman may have": (
        node("proc/net/route", ROUTES + "eth1\t0000580A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"),
        "podman: this node has a route to 10.88.0.0/16, and containers would have 10.88.0.0/16: choose another "
        "podman.pool",
    ),
    "another kernel than was measured": (
        measured_on_another_kernel,
        "uplink: the kernel or a program has changed since the uplinks were measured: pasta, slirp4netns",
    ),
    "another interface than was named": (
        setting("scratch:", "fabric: {interface: ib0}\nscratch:"),
        on_several("there is no interface ib0 on this node to carry the fabric"),
    ),
    "an interface for small packets": (
        small_packets,
        on_several("packets on eth0 are too small for a fabric: its MTU is 1300"),
    ),
    "no file of hosts": (
        setting("scratch:", "fabric: {hosts: /run/site/hosts}\nscratch:"),
        on_several("fabric.hosts: there is no /run/site/hosts"),
    ),
}
