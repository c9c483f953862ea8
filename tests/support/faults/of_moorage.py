"""Faults of what is Moorage's own: its configuration, units, store, clusters, scratch and state, and leftovers."""

import time

from support.faults.changes import (
    Change,
    attribute,
    away,
    both,
    covered,
    edited,
    instead,
    linked,
    mode,
    nothing,
    planted,
    printing,
    setting,
)
from support.faults.events import dead_job, failed, mounted, newer, on_ramfs, overlaid, stopped
from support.faults.fault import Effect, Fault, How, in_guest, made_up, on_both
from support.faults.hooks import JOB
from support.faults.places import Places

NONE, FAILS, DRAINS, AGENT, FOUND, ADVICE = Effect
NODE_IMAGE = r"^( +image: ).*"
DRAIN = "node_fault: drain"
TWO_DAYS = 2 * 24 * 3600


def systemctl_says(unit: str, *properties: str) -> How:
    text = "\n".join((f"Id={unit}", *properties))
    return lambda at: printing(at.program("systemctl"), text)


def another_image(at: Places, name: str) -> Change:
    """The node image, in the store and in the configuration, has this name."""
    return both(
        edited(at.images, r'"names": \[".*?"\]', f'"names": ["{name}"]'),
        edited(at.configuration, NODE_IMAGE, rf'\1"{name}"'),
    )


def later(seconds: float) -> Change:
    now = time.time()
    return attribute("time.time", lambda: now + seconds)


CONFIGURATION: dict[str, Fault] = {
    "typo": on_both(
        FAILS,
        r"configuration: <configuration>:\d+: there is no setting node_fualt: did you mean node_fault\?",
        lambda at: setting(at.configuration, "node_fualt: drain"),
    ),
    "wrong value": on_both(
        FAILS,
        r"configuration: <configuration>:\d+: epilog_limit is 'soon': give seconds, from 1 to 3600",
        lambda at: setting(at.configuration, "epilog_limit: soon"),
    ),
    "not YAML": on_both(
        FAILS,
        r"configuration: <configuration>:\d+: this is not YAML: .*",
        lambda at: setting(at.configuration, "run: [64M"),
    ),
    "writable by all": on_both(
        FAILS,
        r"configuration: <configuration> can be written by others than root: chown root: .*; chmod 644 .*",
        lambda at: mode(at.configuration, 0o666),
    ),
    "feature that is none": on_both(
        FOUND,
        r"features: <features>/tape\.yaml:1: which job has tape, only its devices tell: .*",
        lambda at: planted(at.features / "tape.yaml", "gres: tape\n"),
    ),
    "accounts that nobody checks": on_both(
        FOUND,
        r"policy: policy.accounts keeps nobody out: Slurm takes .*: AccountingStorageEnforce=.*",
        lambda at: setting(at.configuration, "policy: {accounts: [physics]}"),
    ),
    "QOS that an old Slurm does not tell": made_up(
        FOUND,
        r"policy: policy.qos keeps every job out: before .*",
        lambda at: both(
            setting(at.configuration, "policy: {qos: [normal]}"),
            edited(at.slurm_conf, "^PrologTimeout", "AccountingStorageEnforce=qos\nPrologTimeout"),
        ),
    ),
}
UNITS: dict[str, Fault] = {
    "unit missing": on_both(
        FOUND,
        r"units: moorage-warden@\.service is not installed: put config/moorage-warden@\.service into /etc/.*",
        lambda at: away(at.unit("moorage-warden@.service")),
    ),
    "unit masked": on_both(
        FOUND,
        r"units: moorage-warden@\.service is masked: systemctl unmask moorage-warden@\.service",
        lambda at: linked(at.unit("moorage-warden@.service"), "/dev/null"),
    ),
    "unit not enabled": on_both(
        FOUND,
        r"units: moorage-sweep\.timer is not enabled: systemctl enable --now moorage-sweep\.timer",
        lambda at: away(at.unit("timers.target.wants/moorage-sweep.timer")),
    ),
    "unit failed": Fault(
        FOUND,
        r"units: moorage-trash\.service has failed: see why: journalctl -u .*; then systemctl restart .*",
        guest=lambda at: failed("moorage-trash.service", at.file("/opt/moorage/bin/python3")),
        made_up=systemctl_says("moorage-trash.service", "ActiveState=failed", "NeedDaemonReload=no"),
    ),
    "timer stopped": Fault(
        FOUND,
        r"units: moorage-sweep\.timer is enabled and not running: systemctl start moorage-sweep\.timer",
        guest=lambda at: stopped("moorage-sweep.timer"),
        made_up=systemctl_says(
            "moorage-sweep.timer", "ActiveState=inactive", "NeedDaemonReload=no", "UnitFileState=enabled"
        ),
    ),
    "unit changed": Fault(
        FOUND,
        r"units: moorage-sweep\.timer has changed since systemd read it: systemctl daemon-reload",
        guest=lambda at: newer(at.unit("moorage-sweep.timer")),
        made_up=systemctl_says("moorage-sweep.timer", "ActiveState=active", "NeedDaemonReload=yes"),
    ),
}
STORE: dict[str, Fault] = {
    "store open to all": on_both(
        FOUND,
        r"store: <store> is not root's alone: chown root .*; chmod 700 .*",
        lambda at: mode(at.store, 0o755),
    ),
    "store on an overlay": on_both(
        FOUND,
        r"store: the store <store> lies on an overlay, .*: set store.path to .*",
        lambda at: overlaid(at.store),
    ),
    "store without mapped owners": on_both(
        FOUND,
        r"store: store.view is idmap, and mapped mounts do not work .*: set it to auto or copy",
        lambda at: both(on_ramfs(at.store), setting(at.configuration, "store: {view: idmap}")),
    ),
    "store that each user copies": made_up(
        ADVICE,
        r"store: mapped mounts do not work here.*",
        lambda at: both(on_ramfs(at.store), setting(at.configuration, "store: {view: auto}")),
    ),
    "list of images damaged": on_both(
        FOUND,
        r"store: the list of images in <store>/images is damaged .*: fill .*",
        lambda at: instead(at.images, "{"),
    ),
    "description of an image damaged": on_both(
        FOUND,
        r"store: image \S+: its description is not the one it came with: remove the image, .*",
        lambda at: instead(at.description, lambda old: old.replace(b"amd64", b"arm64")),
    ),
    "list of layers damaged": made_up(
        FOUND,
        r"store: image \S+: its description cannot be understood.*",
        lambda at: instead(at.store / "images/overlay-layers/layers.json", "[3]"),
    ),
    "layer lost": on_both(
        FOUND,
        r"store: image \S+: layer \w+ has lost its files: remove the image, and add it again: .*",
        lambda at: away(at.layer),
    ),
}
KUBERNETES: dict[str, Fault] = {
    "no node image": on_both(
        FOUND,
        r"kubernetes: the store has no image localhost/other:v1\.36\.3: moorage image add, then moorage image prepare",
        lambda at: edited(at.configuration, NODE_IMAGE, r"\1localhost/other:v1.36.3"),
    ),
    "node image of no version": made_up(
        FOUND,
        r"kubernetes: the tag of node image localhost/node:latest names no version.*",
        lambda at: another_image(at, "localhost/node:latest"),
    ),
    "old node image": made_up(
        FOUND,
        r"kubernetes: localhost/node:v1\.31\.0 is too old: its API cannot be closed to strangers.*",
        lambda at: another_image(at, "localhost/node:v1.31.0"),
    ),
    "no archive of the node image": made_up(
        FOUND,
        r"kubernetes: kubernetes\.archive: there is no /run/none/image\.tar.*",
        lambda at: edited(at.configuration, NODE_IMAGE, r"\1localhost/other:v1.36.3\n  archive: /run/none/image.tar"),
    ),
    "no kind": Fault(
        FOUND,
        r"kubernetes: there is no program /opt/none/kind: install it, or name it in kubernetes\.kind",
        guest=lambda at: edited(at.configuration, r"^( +kind: ).*", r"\1/opt/none/kind"),
        made_up=lambda at: edited(at.configuration, r"^( +image: .*)", r"\1\n  kind: /opt/none/kind"),
    ),
    "no kind in PATH": made_up(FOUND, r"kubernetes: there is no program kind: .*", lambda at: away(at.program("kind"))),
    "mute kind": made_up(
        FOUND,
        r"kubernetes: <kind> is mute when asked for its version.*",
        lambda at: instead(at.program("kind"), "#!/bin/sh\n", 0o755),
    ),
    "old kind": Fault(
        FOUND,
        r"kubernetes: \S+/kind is kind version 0\.29\.0: install kind 0\.33 or newer",
        guest=lambda at: both(
            planted(at.file("/run/old/kind"), "#!/bin/sh\necho kind version 0.29.0\n"),
            mode(at.file("/run/old/kind"), 0o755),
            edited(at.configuration, r"^( +kind: ).*", r"\1/run/old/kind"),
        ),
        made_up=lambda at: printing(at.program("kind"), "kind version 0.29.0"),
    ),
    "old kubectl": on_both(
        ADVICE,
        r"kubernetes: kubectl says Client Version: v1\.30\.1, and is too far from Kubernetes 1\.36\.\d.*: install .*",
        lambda at: printing(at.program("kubectl"), "Client Version: v1.30.1"),
    ),
    "kubectl of another age": made_up(
        ADVICE,
        r"kubernetes: kubectl says Client Version: .*",
        lambda at: printing(
            at.program("kubectl"), "Client Version: version.Info{Major:2, Minor:36, GitVersion:v2.36.1}"
        ),
    ),
}
SCRATCH: dict[str, Fault] = {
    "no scratch": on_both(
        FAILS,
        r"scratch: scratch.path: there is no <scratch>: install -d -m 700 <scratch>; .*",
        lambda at: away(at.scratch),
    ),
    "scratch is a file": on_both(
        FAILS,
        r"scratch: scratch.path: <scratch> is not a directory: name the place without symbolic links",
        lambda at: instead(at.scratch, ""),
    ),
    "scratch writable by all": on_both(
        FAILS,
        r"scratch: scratch.path: others than root can change <scratch>: chown root .*; chmod go-w .*",
        lambda at: mode(at.scratch, 0o777),
    ),
    "scratch open to all": on_both(
        FAILS,
        r"scratch: scratch.path: others than root can enter <scratch>: chmod 700 <scratch>",
        lambda at: mode(at.scratch, 0o755),
    ),
    "scratch full": on_both(
        FAILS,
        r"scratch: 16 MiB are free on <scratch> and a job's scratch is .*: make room, or make .* smaller",
        lambda at: covered(at.scratch, "tmpfs", "size=16m,mode=700"),
    ),
    "no inodes": Fault(
        FAILS,
        r"scratch: [02] inodes are free on <scratch> and a job's scratch needs (1|4096): make room.*",
        guest=lambda at: covered(at.scratch, "tmpfs", "size=8g,nr_inodes=1,mode=700"),
        made_up=lambda at: covered(at.scratch, "tmpfs", "size=128m,nr_inodes=3,mode=700"),
    ),
    "scratch read-only": on_both(
        FAILS,
        r"scratch: scratch.path: <scratch> is mounted read-only: mount it for writing",
        lambda at: covered(at.scratch, "tmpfs", "ro,mode=700"),
    ),
    "scratch on ramfs": on_both(
        FAILS,
        r"scratch: scratch.path: <scratch> lies on ramfs: choose a file system of this node .*",
        lambda at: covered(at.scratch, "ramfs", "mode=700"),
    ),
    "no project quotas": Fault(
        FAILS,
        r"scratch: /\S* \(\w+\) keeps no project quotas: mount ext4 or XFS with prjquota, or set .* to loop",
        guest=lambda at: setting(at.configuration, f"scratch: {{kind: project, path: {at.scratch}}}"),
        made_up=lambda at: setting(at.configuration, "scratch: {kind: project, size: 64M}"),
    ),
    "no mkfs.ext4": Fault(
        FAILS,
        r"scratch: this node has no mkfs.ext4: install e2fsprogs, or set another scratch.kind",
        guest=lambda at: away(at.program("mkfs.ext4")),
        made_up=lambda at: setting(at.configuration, "scratch: {kind: loop, size: 64M}"),
    ),
    "no loop devices": in_guest(
        FAILS,
        r"scratch: this node has no loop devices: modprobe loop, or set another scratch.kind",
        lambda at: away(at.file("/dev/loop-control")),
    ),
    "states open to all": on_both(
        FOUND,
        r"state: the jobs' states: others than root can enter <states>: chmod 700 .*",
        lambda at: mode(at.states, 0o755),
    ),
    "no room for states": on_both(
        FOUND,
        r"state: the disk of <states> is full: make room: .*",
        lambda at: covered(at.states, "tmpfs", "size=512k,mode=700"),
    ),
}
LEFTOVERS: dict[str, Fault] = {
    "dead job": in_guest(
        FOUND,
        r"leftovers: job \d+ has not been cleaned up: its processes are gone: moorage sweep --now",
        lambda at: dead_job(),
    ),
    "state that nobody understands": on_both(
        FOUND,
        rf"leftovers: <states>/{JOB}\.json cannot be understood: look for what .*",
        lambda at: planted(at.states / f"{JOB}.json", "?"),
    ),
    "scratch of no job": on_both(
        FOUND,
        rf"leftovers: <scratch>/{JOB}\.img is left of a job that has no state here: rm -rf <scratch>/.*",
        lambda at: planted(at.scratch / f"{JOB}.img"),
    ),
    "mount of no job": on_both(
        FOUND,
        rf"leftovers: <run>/{JOB} is mounted, and that job has no state here: umount --lazy .*",
        lambda at: mounted(at.run / str(JOB)),
    ),
    "files that nobody removes": made_up(
        FOUND,
        r"leftovers: 1 ended job\(s\) still have files in .*",
        lambda at: both(planted(at.scratch / ".moorage-trash/17.abc/file"), later(TWO_DAYS)),
    ),
}
# Nothing is wrong with the node, or the site wants it so, or nothing of Moorage is left on it.
OTHERS: dict[str, Fault] = {
    "sound": in_guest(NONE, "", lambda at: nothing()),
    "sound again": in_guest(NONE, "", lambda at: nothing()),
    "faults drain": in_guest(NONE, "", lambda at: setting(at.configuration, DRAIN)),
    # The shim stays, without which nothing could stop the script.
    "no product": in_guest(NONE, "", lambda at: away(at.file("/opt/moorage"))),
    "no prolog": in_guest(NONE, "", lambda at: away(at.prolog)),
    "drain": in_guest(
        DRAINS,
        "",
        lambda at: both(setting(at.configuration, DRAIN), away(at.program("podman"))),
        job=r"Podman is not installed: install podman 4\.9 or newer",
    ),
    "drain for a user": in_guest(
        FAILS,
        "",
        lambda at: both(setting(at.configuration, DRAIN), edited(at.file("/etc/subuid"), "^alice:.*", "")),
        job=r"user alice has no subordinate uids on this node: ask the administrator .*",
    ),
}
