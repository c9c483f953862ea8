"""Each thing that a node must have, taken from it for real: one line says what is wrong and what to do."""

from __future__ import annotations

import re

import pytest

from support.figures import Figures
from virtual.arrays import RAN, ends, number, outputs, submission
from virtual.broken import Outcome, during, prologs
from virtual.cluster import Cluster
from virtual.jobs import MOORED, submit

CONFIGURATION = "/etc/moorage/moorage.yaml"
SCRATCH = "/var/lib/moorage/scratch"

# What the job is told, as a regular expression; the hook ends with 0, and the node goes on.
FAILS = {
    "linuxproc": r"/etc/slurm/slurm.conf has ProctrackType=proctrack/linuxproc: let proctrack/cgroup be in it, .*",
    "no task/cgroup": r"/etc/slurm/slurm.conf has TaskPlugin=task/affinity: let task/cgroup be in it, and .*",
    "no Epilog=": r"no Epilog= of /etc/slurm/slurm.conf runs 50-moorage: add the line Epilog=/etc/slurm/epilog.d/\*.*",
    "no epilog": r"no Epilog= of /etc/slurm/slurm.conf runs 50-moorage: add the line .*",
    "epilog not executable": r"/etc/slurm/epilog.d/50-moorage cannot be executed: chmod 755 /etc/.*",
    "mount namespace of its own": r"slurmd runs in a mount namespace of its own: take PrivateTmp=, .* out of .*",
    "old kernel": r"the kernel is 2\.6\..*: 5\.14 is the oldest that can do this",
    "no scope of slurmd's": r"slurmd has made no slurmstepd.scope: set ProctrackType=proctrack/cgroup and, .*",
    "no pids controller": r"slurmstepd.scope lacks the controllers pids: let systemd delegate them .*",
    "overlay not loaded": r"the kernel module overlay is not loaded: modprobe overlay, at boot by .*",
    "no module veth": r"this kernel has no module veth: install the rest of the kernel's modules",
    "no /dev/fuse": r"/dev/fuse is missing: modprobe fuse, at boot by config/modules-load.d/moorage.conf",
    "/dev/net/tun closed": r"users may not open /dev/net/tun: chmod 666 /dev/net/tun, at boot by a udev rule",
    "few user namespaces": r"user.max_user_namespaces is 10: set it to 256 or more, as config/sysctl.d/.* does",
    "few inotify instances": r"fs.inotify.max_user_instances is 128: set it to 512 or more, .*",
    "few keys": r"kernel.keys.maxkeys is 200: set it to 1000 or more, .*",
    "no user namespaces": r"kernel.unprivileged_userns_clone is 0: set it to 1, .*",
    "no podman": r"Podman is not installed: install podman 4\.9 or newer",
    "old podman": r"/usr/bin/podman is podman version 4\.3\.1: install podman 4\.9 or newer",
    "mute podman": r"/usr/bin/podman is mute when asked for its version: install podman 4\.9 or newer",
    "no runtime": r"this node has no container runtime: install crun 1\.8\.2 or newer, or runc 1\.1 or newer",
    "old runtimes": r"this node has crun version 1\.8\.1, runc version 1\.0\.3: install crun 1\.8\.2 or newer, .*",
    "no conmon": r"conmon is not installed: install the package that has it \(conmon\)",
    "no netavark": r"netavark is not installed: install the package that has it \(netavark\)",
    "no getsubids": r"getsubids is not installed: install the package that has it \(uidmap or shadow-utils\)",
    "newuidmap without privilege": r"/usr/bin/newuidmap has no privilege to map ids: chmod u\+s /usr/bin/newuidmap, .*",
    "no policy.json": r"there is no /etc/containers/policy.json: install the package containers-common",
    "no uplink": r"no way for containers .* \(pasta: not allowed .*; slirp4netns: not installed\): install one .*",
    "old pasta, no other": r"no way for containers .* \(pasta: too old: .*; slirp4netns: not installed\): .*",
    "uplink that the site forbids": r"uplink=slirp4netns cannot be had .* \(not allowed .*\): leave uplink away, or .*",
    "typo": rf"{CONFIGURATION}:\d+: there is no setting node_fualt: use one of node_fault, .*",
    "wrong value": rf"{CONFIGURATION}:\d+: epilog_limit is 'soon': give seconds, from 1 to 3600",
    "not YAML": rf"{CONFIGURATION}:\d+: this is not YAML: .*",
    "writable by all": rf"{CONFIGURATION} can be written by others than root: chown root: .*; chmod 644 .*",
    "no scratch": rf"scratch.path: there is no {SCRATCH}: install -d -m 700 {SCRATCH}; .*",
    "scratch is a file": rf"scratch.path: {SCRATCH} is not a directory: name the place without symbolic links",
    "scratch writable by all": rf"scratch.path: others than root can change {SCRATCH}: chown root .*; chmod go-w .*",
    "scratch open to all": rf"scratch.path: others than root can enter {SCRATCH}: chmod 700 {SCRATCH}",
    "scratch full": rf"16 MiB are free on {SCRATCH} and a job's scratch is \w+: make room, or make .* smaller",
    "no inodes": rf"0 inodes are free on {SCRATCH} and a job's scratch needs 1: make room",
    "scratch read-only": rf"scratch.path: {SCRATCH} is mounted read-only: mount it for writing",
    "scratch on ramfs": rf"scratch.path: {SCRATCH} lies on ramfs: choose a file system of this node .*",
    "no project quotas": r"/ \(ext4\) keeps no project quotas: mount ext4 or XFS with prjquota, or set .* to loop",
    "no mkfs.ext4": r"this node has no mkfs.ext4: install e2fsprogs, or set another scratch.kind",
    "no loop devices": r"this node has no loop devices: modprobe loop, or set another scratch.kind",
    "no slurm.conf": r"/etc/slurm/no.conf says nothing of prologs and plug-ins: see that slurmd's SLURM_CONF names .*",
    "root": r"root has no use for --k8s: submit the job as a user",
    "two ids": r"user alice is 4711 to Slurm and 1001 to this node: let both ask the same directory of users",
    "nonsense": r"--k8s: 'nonsense' is neither 0, 1 nor key=value: write it like .*",
    "no subgids": r"user alice has no subordinate gids on this node: ask the administrator for a range of 65536 .*",
    "few subuids": r"user alice has only 1000 subordinate uids on this node: ask the administrator for a range .*",
    "overlapping subuids": r"the subordinate uids 100000-165535 of user alice meet 165000-230535 of bob: ask .*",
    "subuids with a real user": r"the subordinate uids 1000-66535 of user alice contain \d+, which is a real uid: .*",
    "drain for a user": r"user alice has no subordinate uids on this node: ask the administrator .*",
}
# The hook ends with another code and Slurm drains the node, for nothing could keep the script from running, or because
# the site wants it so. The line is in the journal.
DRAINS = {
    "no shim": r"the shim \S+/moorage.so is missing on this node: build and install it: .*",
    "shim of another release": r"\S+/moorage.so was built for Slurm 23\.02 and this node runs 2\d\.\d\d: build it .*",
    "another plug-in under its name": r"\S+/moorage.so is not Moorage's shim: build and install it: .*",
    "shim not in plugstack.conf": r"plugstack.conf has no line for moorage.so: add 'required .*'",
    "shim by a relative path": r"plugstack.conf names the shim as moorage.so: write its absolute path there",
    "drain": r"Podman is not installed: install podman 4\.9 or newer",
}
# What jobs are really sent for; the others start the same hook in the same way.
NO_HOOK = {"no prolog": r"the Prolog has not prepared this node for job \d+: tell the administrator of this node: .*"}
JOBS = ["no podman", "overlapping subuids", "scratch writable by all", "typo", *NO_HOOK]
UNTIL_DRAINED = 'scontrol release "$1"; until scontrol show node n1 | grep -q DRAIN; do sleep 0.3; done'
LIMIT = 120
# One after the other takes minutes, and the checks ask no Slurm: one release of it is enough.
ON_ONE_RELEASE = pytest.mark.parametrize("lab", ["trixie"], indirect=True)
SERVES = ("sound", "faults drain", "sound again")


@pytest.fixture(scope="module")
def outcomes(lab: Cluster, figures: Figures) -> dict[str, Outcome]:
    lab.wait_idle()
    found = prologs(lab.first.shell, "sound", "faults drain", *FAILS, *DRAINS, "no product", "sound again")
    figures.add("Prolog of a served job", found["sound"].seconds, "s")
    slowest = max(outcome.seconds for name, outcome in found.items() if name in FAILS)
    figures.add(f"Prolog of a refused job, slowest of {len(FAILS)}", slowest, "s")
    return found


@ON_ONE_RELEASE
@pytest.mark.parametrize("name", SERVES)
def test_a_sound_node_serves(outcomes: dict[str, Outcome], name: str) -> None:
    """Also after all that was done to it."""
    sound = outcomes[name]
    assert (sound.code, sound.said, sound.refusal, sound.gone) == (0, "", "", True)
    assert {"job.json", "scratch", "user", "warden.sock"} <= set(sound.made)


@ON_ONE_RELEASE
@pytest.mark.parametrize("name", FAILS)
def test_what_fails_a_job(outcomes: dict[str, Outcome], name: str) -> None:
    """One line, nothing else made, and nothing for slurmd to hold against the node."""
    found = outcomes[name]
    assert (found.code, found.said, found.made, found.gone) == (0, "", ["refusal"], True), found
    assert re.fullmatch(FAILS[name] + "\n", found.refusal), found.refusal


@ON_ONE_RELEASE
@pytest.mark.parametrize("name", DRAINS)
def test_what_drains_the_node(outcomes: dict[str, Outcome], name: str) -> None:
    found = outcomes[name]
    assert (found.code, found.gone) == (1, True), found
    assert re.fullmatch(DRAINS[name], found.journal), found.journal


@ON_ONE_RELEASE
def test_a_node_without_the_product_is_drained(outcomes: dict[str, Outcome]) -> None:
    found = outcomes["no product"]
    assert found.code not in (0, 1)
    assert "/opt/moorage/bin/python3: not found" in found.said


@pytest.mark.parametrize("name", JOBS)
def test_a_job_ends_with_the_line_and_the_node_is_idle(lab: Cluster, name: str) -> None:
    shell = lab.first.shell
    array = number(during(shell, name, submission("alice"), ok=(1,)).stdout)
    lab.wait_idle(limit=60)
    (said,) = outputs(shell, array, "alice")
    assert re.fullmatch("moorage: " + (FAILS | NO_HOOK)[name], said), said
    assert ends(shell, array) == ["FAILED|1:0"]


@pytest.mark.parametrize("name", ["no shim", "shim of another release", "drain"])
def test_a_job_waits_for_a_node_that_can_serve_it(lab: Cluster, name: str) -> None:
    """Held before the node is broken, for this one is also where it is submitted. The script never runs unserved."""
    shell = lab.first.shell
    job = submit(shell, f"echo {RAN}", MOORED, "--hold", "--nodelist=n1", "--mem=100M")
    try:
        during(shell, name, ["timeout", str(LIMIT), "sh", "-c", UNTIL_DRAINED, "sh", job.id])
        node = shell.output("scontrol", "--oneliner", "show", "node", "n1")
        assert "Reason=Prolog error" in node
        assert job.wait_state("PENDING")
        assert shell.run(["cat", job.place], user="alice", ok=(0, 1)).stdout == ""
    finally:
        job.cancel()
        shell.run(["scontrol", "update", "nodename=n1", "state=resume"])
        lab.wait_idle(limit=60)
