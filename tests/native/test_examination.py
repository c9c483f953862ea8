"""A node that is broken in one way has one finding: what `moorage doctor` says of it, by the code that it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage import __version__, clock, command, config, mounts, programs, trash
from moorage.errors import UserError
from moorage.examination import Report, examine
from moorage.finding import Finding
from moorage.node import Node
from moorage.settings import MIB
from moorage.state import State
from support.namespaces import MOUNT, fresh
from support.node import JOB, LIMITS, USER
from support.peers import Peer
from support.site import IMAGE, REPOSITORY, SCOPE, Site

PLACE = Path("/run/site")
QUICK = 0.3
ROUNDS = 15
EARLIER = "00000000-0000-0000-0000-000000000000"
# The whole command, but for where it finds the node.
DOCTOR = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
from pathlib import Path
from moorage import cli, command, config, examination, node
place = Path(sys.argv.pop(1))
command.PATH, config.PLACE = str(place / "bin"), place / "moorage.yaml"
examination.Node = lambda: node.Node(place / "node")
cli.main()
"""

Break = Callable[[Site, pytest.MonkeyPatch], object]


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with fresh(MOUNT):
        for place in ("/run", "/var/lib"):
            mounts.mount_tmpfs(Path(place), size=256 * MIB, inodes=100000, uid=0, gid=0, mode=0o755)
        PLACE.mkdir()
        site = Site(PLACE)
        site.make()
        monkeypatch.setattr(command, "PATH", str(site.programs))
        monkeypatch.setattr(config, "PLACE", site.configuration)
        yield site


def examined(site: Site, *, quick: bool = False, every_byte: bool = False) -> Report:
    return examine(site.environment, quick=quick, every_byte=every_byte, node=Node(site.root))


def told(finding: Finding) -> str:
    return f"{finding.check}: {finding}"


@pytest.mark.parametrize("way", [{}, {"quick": True}, {"every_byte": True}])
def test_a_healthy_node_has_no_finding(site: Site, way: dict[str, bool]) -> None:
    report = examined(site, **way)
    assert (report.findings, report.left_out) == ([], [])


def test_of_each_thing_the_version_is_told(site: Site) -> None:
    assert examined(site).versions == {
        "crun": "crun version 1.21",
        "kernel": os.uname().release,
        "kind": "kind version 0.33.0",
        "moorage": __version__,
        "pasta": "pasta 2025_05_03.587980c-2",
        "podman": "podman version 5.4.2",
        "shim": "24.11",
        "slirp4netns": "slirp4netns version 1.2.1",
        "slurm": "slurm-wlm 24.11.5",
        f"image {IMAGE}": site.image,
    }


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
    aside = PLACE / "aside"
    shutil.move(site.store, aside)
    site.store.mkdir()
    if kind == "overlay":
        for name in ("upper", "work"):
            (PLACE / name).mkdir()
        options = f"lowerdir={aside},upperdir={PLACE}/upper,workdir={PLACE}/work"
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


def ruled(rule: str, enforced: str = "") -> Break:
    def do(site: Site, _: object) -> None:
        site.configured("scratch:", f"policy: {{{rule}}}\nscratch:")
        site.slurm_conf("PrologTimeout", f"AccountingStorageEnforce={enforced}\nPrologTimeout")

    return do


FAULTS: dict[str, tuple[Break, str]] = {
    # what the site has written
    "a feature that is none": (
        feature("gres: tape\n"),
        "features: /run/site/features.d/tape.yaml:1: gres is 'tape'",
    ),
    "any account": (ruled("accounts: [physics]"), "policy: policy.accounts keeps nobody out: Slurm takes whatever"),
    "an old Slurm tells no QOS": (ruled("qos: [normal]", "qos"), "policy: policy.qos keeps every job out: before"),
    # the shim, and Slurm
    "plugstack without the shim": (
        lambda site, _: (site.slurm / "plugstack.conf").write_text("# nothing\n"),
        "shim: plugstack.conf has no line for moorage.so",
    ),
    "the shim gone": (
        lambda site, _: (site.slurm / "moorage.so").unlink(),
        "shim: the shim /run/site/slurm/moorage.so",
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
        slurm("PrologTimeout=120", "PrologTimeout=60"),
        "slurm: /run/site/slurm/slurm.conf has PrologTimeout=60, and our Prolog may take 60 s",
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
    "an old crun": (says("crun", "crun version 1.8.1"), "runtime: this node has crun version 1.8.1"),
    "a program missing": (gone("conmon"), "programs: conmon is not installed"),
    "no privilege to map ids": (mode("bin/newuidmap", 0o755), "programs: /run/site/bin/newuidmap has no privilege"),
    "an old Python": (
        lambda _, monkeypatch: monkeypatch.setattr(programs, "OLDEST_PYTHON", (99, 0)),
        "python: Python is ",
    ),
    "no policy": (without("etc/containers/policy.json"), "podman: there is no /etc/containers/policy.json"),
    "no way to the outside": (gone("pasta", "slirp4netns"), "uplink: no way for containers to reach the outside"),
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
        "configuration: /run/site/moorage.yaml:1: there is no setting nodes",
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
    "a unit that systemd has not read": (
        says("systemctl", "Id=moorage-sweep.timer\nActiveState=active\nNeedDaemonReload=yes\n"),
        "units: moorage-sweep.timer has changed since systemd read it",
    ),
    "scratch gone": (
        lambda site, _: site.scratch.rmdir(),
        "scratch: scratch.path: there is no /var/lib/moorage/scratch",
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
    "no archive of it": (archive_missing, "kubernetes: kubernetes.archive: there is no /run/site/image.tar"),
    "no kind": (gone("kind"), "kubernetes: there is no program kind"),
    "another kind than was named": (
        setting("kubernetes: {", "kubernetes: {kind: /opt/none/kind, "),
        "kubernetes: there is no program /opt/none/kind",
    ),
    "an old kind": (says("kind", "kind version 0.29.0"), "kubernetes: /run/site/bin/kind is kind version 0.29.0"),
    # what is left of jobs
    "a dead job": (dead_job, "leftovers: job 17 has not been cleared up: the node has booted since"),
    "a job that nobody understands": (
        lambda site, _: (site.states / "17.json").write_text("?"),
        "leftovers: /var/lib/moorage/jobs/17.json cannot be understood",
    ),
    "scratch of no job": (
        lambda site, _: (site.scratch / "17.img").touch(),
        "leftovers: /var/lib/moorage/scratch/17.img is left of a job of which nothing is known",
    ),
    "a mount of no job": (mount_of_nobody, "leftovers: /run/moorage/17 is mounted, and nothing is known of that job"),
    "files that nobody removes": (old_trash, "leftovers: 1 ended job(s) still have files in "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_nothing_else(fault: str, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    breakage, words = FAULTS[fault]
    breakage(site, monkeypatch)
    report = examined(site)
    assert [told(finding)[: len(words)] for finding in report.findings] == [words], list(map(told, report.findings))
    assert all(finding.remedy for finding in report.findings)
    assert report.faults == report.findings
    assert report.left_out == []


def test_there_are_enough_of_them() -> None:
    print(f"faults found exactly: {len(FAULTS)}")
    assert len({words for _, words in FAULTS.values()}) >= 30


@pytest.mark.parametrize(
    ("breakage", "words"),
    [
        (
            store_without_mapping("auto"),
            "store: mapped mounts do not work here",
        ),
        (keeps_time, "clock: the service that keeps this node's clock has not got it right yet"),
    ],
)
def test_advice_is_no_fault(breakage: Break, words: str, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    breakage(site, monkeypatch)
    report = examined(site)
    assert [told(finding)[: len(words)] for finding in report.findings] == [words]
    assert report.faults == []


@pytest.mark.parametrize(
    ("breakage", "fault"),
    [("scratch full", "room"), ("no room for states", "room"), ("scratch open", "node")],
)
def test_a_full_disk_is_no_fault_of_the_nodes(
    breakage: str, fault: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS[breakage][0](site, monkeypatch)
    assert [finding.fault for finding in examined(site).findings] == [fault]


def test_a_byte_that_has_changed_shows_to_whoever_reads_all(site: Site) -> None:
    site.motd.write_bytes(site.motd.read_bytes().upper())
    assert examined(site).findings == []
    (found,) = examined(site, every_byte=True).findings
    assert told(found).startswith(f"store: image {IMAGE}: layer {site.layer[:12]}: its files make sha256:")


def test_all_faults_of_a_configuration_are_named(site: Site) -> None:
    site.configured("scratch:", "nodes: 2\npids_max: many\nscratch:")
    assert [finding.cause.partition(": ")[2] for finding in examined(site).findings] == [
        "there is no setting nodes",
        "pids_max is 'many'",
    ]


def test_what_cannot_be_looked_into_keeps_nothing_from_being_found(site: Site) -> None:
    (site.programs / "systemctl").write_text("#!/bin/sh\nexit 1\n")
    (site.scratch / "17.img").touch()
    first, second = examined(site).findings
    assert told(first).startswith("states of units: this could not be looked into (")
    assert second.check == "leftovers"


def test_quickly_no_program_is_asked_whose_version_is_known(site: Site) -> None:
    examined(site)
    inode = (site.run / "facts.json").stat().st_ino
    assert examined(site, quick=True).findings == []
    assert (site.run / "facts.json").stat().st_ino == inode, "something was found out anew"
    examined(site)
    assert (site.run / "facts.json").stat().st_ino != inode


def doctor(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-I", "-c", DOCTOR, str(REPOSITORY / "plugin"), str(site.place), "doctor", *words]
    return subprocess.run(program, env=site.environment, capture_output=True, text=True, check=False)


def test_quickly_it_takes_less_than_300_ms(site: Site) -> None:
    """Of some rounds the quickest: what else this machine does is not the command's."""
    assert (doctor(site).returncode, doctor(site, "--quick").stdout) == (0, "nothing is wrong\n")
    rounds = [timed(site) for _ in range(ROUNDS)]
    middle = sorted(rounds)[ROUNDS // 2]
    print(f"moorage doctor --quick: {min(rounds) * 1000:.0f} ms, middle of all {middle * 1000:.0f} ms")
    assert min(rounds) < QUICK


def timed(site: Site) -> float:
    begun = time.perf_counter()
    assert doctor(site, "--quick").returncode == 0
    return time.perf_counter() - begun


def test_a_user_sees_what_he_may(site: Site) -> None:
    """What shows to root alone is named, and the rest is looked at."""
    site.slurm_conf("task/cgroup,", "")
    site.scratch.chmod(0o755)
    with Peer(USER) as user:
        report = user.do(examined, site)
    (found,) = report.findings
    assert "has TaskPlugin=task/affinity" in told(found)
    assert report.left_out == ["systemd", "apparmor", "scratch", "slurmd", "state", "node image", "store", "leftovers"]


def test_a_user_is_told_of_what_he_may_not_read(site: Site) -> None:
    (site.slurm / "slurm.conf").chmod(0o600)
    with Peer(USER) as user:
        said = user.do(refused, site)
    assert said == f"{site.slurm}/slurm.conf cannot be read (Permission denied): run it with sudo"


def refused(site: Site) -> str:
    try:
        return repr(examined(site))
    except UserError as error:
        return str(error)
