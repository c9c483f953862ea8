"""Faults of what Moorage stands on: Slurm and its shim, the system, programs, the accounts of users."""

import os
import resource

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
    patched,
    planted,
    printing,
    through,
    told,
    written,
)
from support.faults.events import clock_lost, limited, slurmd_apart, unloaded
from support.faults.fault import Effect, Fault, in_guest, made_up, on_both
from support.faults.places import Places

NONE, FAILS, DRAINS, AGENT, FOUND, ADVICE = Effect
RELEASE = rb"moorage-shim \d\d\.\d\d"
OLD_SHIM = b"moorage-shim 23.02"
OWN_MOUNTS = r"slurmd runs in a mount namespace of its own: take PrivateTmp=, .* out of .*"
LATE = 1e9


def kernel_called(release: str, at: Places) -> Change:
    here = os.uname()
    other = os.uname_result((*here[:2], release, *here[3:]))
    return both(linked(at.dependencies.parent.with_name(release), here.release), attribute("os.uname", lambda: other))


SHIM: dict[str, Fault] = {
    "no shim": on_both(
        DRAINS,
        r"shim: the shim \S+/moorage\.so is missing on this node: build and install it: .*",
        lambda at: away(at.shim),
    ),
    "shim of another release": on_both(
        DRAINS,
        r"shim: \S+/moorage\.so was built for Slurm 23\.02 and this node runs 2\d\.\d\d: build it .*",
        lambda at: patched(at.shim, RELEASE, OLD_SHIM),
    ),
    "another plug-in under its name": on_both(
        DRAINS,
        r"shim: \S+/moorage\.so is not Moorage's shim: build and install it: .*",
        lambda at: patched(at.shim, rb"moorage-shim", b"anybody-shim"),
    ),
    "shim not in plugstack.conf": on_both(
        DRAINS,
        r"shim: plugstack.conf has no line for moorage.so: add 'required .*'",
        lambda at: instead(at.plugstack, "# nothing\n"),
    ),
    "shim by a relative path": on_both(
        DRAINS,
        r"shim: plugstack.conf names the shim as moorage.so: write its absolute path there",
        lambda at: edited(at.plugstack, r"/\S*/moorage\.so", "moorage.so"),
    ),
    "mute slurmd": made_up(
        FOUND,
        r"shim: the release of this node's Slurm is unknown: .*",
        lambda at: instead(at.program("slurmd"), "#!/bin/sh\n", 0o755),
    ),
}
SLURM: dict[str, Fault] = {
    "old slurm": on_both(
        FAILS,
        r"slurm: this node runs slurm 23\.02\.7: 23\.11 is the oldest Slurm that can do this",
        lambda at: both(printing(at.program("slurmd"), "slurm 23.02.7"), patched(at.shim, RELEASE, OLD_SHIM)),
    ),
    "linuxproc": on_both(
        FAILS,
        r"slurm: <slurm_conf> has ProctrackType=proctrack/linuxproc: let proctrack/cgroup be in it, .*",
        lambda at: edited(at.slurm_conf, "^ProctrackType=.*", "ProctrackType=proctrack/linuxproc"),
    ),
    "no task/cgroup": on_both(
        FAILS,
        r"slurm: <slurm_conf> has TaskPlugin=task/affinity: let task/cgroup be in it, and .*",
        lambda at: edited(at.slurm_conf, "^TaskPlugin=.*", "TaskPlugin=task/affinity"),
    ),
    "no Epilog=": on_both(
        FAILS,
        r"slurm: no Epilog= of <slurm_conf> runs 50-moorage: add the line Epilog=<slurm>/epilog.d/\*.*",
        lambda at: edited(at.slurm_conf, "^Epilog=.*", ""),
    ),
    "no epilog": on_both(
        FAILS,
        r"slurm: no Epilog= of <slurm_conf> runs 50-moorage: add the line .*",
        lambda at: away(at.epilog),
    ),
    "epilog not executable": on_both(
        FAILS,
        r"slurm: <epilog> cannot be executed: chmod 755 <epilog>",
        lambda at: mode(at.epilog, 0o644),
    ),
    "no Prolog=": on_both(
        FOUND,
        r"slurm: no Prolog= of <slurm_conf> runs 50-moorage: add the line Prolog=<slurm>/prolog.d/\*.*",
        lambda at: edited(at.slurm_conf, "^Prolog=.*", ""),
    ),
    "prolog not executable": on_both(
        FOUND,
        r"slurm: <prolog> cannot be executed: chmod 755 <prolog>",
        lambda at: mode(at.prolog, 0o644),
    ),
    "hurried Prolog": Fault(
        FOUND,
        r"slurm: <slurm_conf> has PrologTimeout=60, and our Prolog may take [0-9]+ s: make it more, .*",
        guest=lambda at: edited(at.slurm_conf, "^Prolog=", "PrologTimeout=60\nProlog="),
        made_up=lambda at: edited(at.slurm_conf, "^PrologTimeout=.*", "PrologTimeout=60"),
    ),
    "hurried Epilog": Fault(
        FOUND,
        r"slurm: <slurm_conf> has EpilogTimeout=60, and our Epilog may take 60 s: make it more, .*",
        guest=lambda at: edited(at.slurm_conf, "^Prolog=", "EpilogTimeout=60\nProlog="),
        made_up=lambda at: edited(at.slurm_conf, "^EpilogTimeout=.*", "EpilogTimeout=60"),
    ),
    "hurried hooks": made_up(
        FOUND,
        r"slurm: <slurm_conf> has PrologEpilogTimeout=30, and our Epilog may take 60 s: make it more, .*",
        lambda at: edited(at.slurm_conf, "^EpilogTimeout=.*", "PrologEpilogTimeout=30"),
    ),
    "no slurm.conf": in_guest(
        FAILS,
        r"slurm: /etc/slurm/no.conf says nothing of prologs and plug-ins: see that slurmd's SLURM_CONF names .*",
        lambda at: told(SLURM_CONF="/etc/slurm/no.conf"),
    ),
    "slurm.conf of another kind": made_up(
        FOUND,
        r"slurm: <slurm_conf> says nothing of prologs and plug-ins: see that slurmd's SLURM_CONF names .*",
        lambda at: instead(at.slurm_conf, "ClusterName=site\n"),
    ),
    "no JobAcctGatherType": on_both(
        ADVICE,
        r"slurm: <slurm_conf> has JobAcctGatherType=jobacct_gather/none, with which .*: set .*",
        lambda at: edited(at.slurm_conf, "^JobAcctGatherType=.*", ""),
    ),
    "devices for every job": on_both(
        ADVICE,
        r"slurm: <slurm>/cgroup.conf has not ConstrainDevices=yes, so .*: tape: set it .*",
        lambda at: both(
            edited(at.slurm / "cgroup.conf", "^ConstrainDevices=.*", "ConstrainDevices=no"),
            planted(at.features / "tape.yaml", "gres: tape\ndevices: [/dev/tape%]\n"),
        ),
    ),
    "few open files": in_guest(
        AGENT,
        "",
        lambda at: limited(resource.RLIMIT_NOFILE, 1000),
        job=r"`ulimit -Hn` allows 1000 open files where 1024 are needed: ask the site to raise that .*",
    ),
}
KERNEL: dict[str, Fault] = {
    "no systemd": made_up(
        FOUND, r"systemd: this node was not booted with systemd: .*", lambda at: away(at.file("/run/systemd/system"))
    ),
    "mount namespace of its own": Fault(
        FAILS,
        f"systemd: {OWN_MOUNTS}",
        guest=lambda at: through("unshare", "--mount"),
        made_up=lambda at: linked(at.file("/proc/self/ns/mnt"), "mnt:[2]"),
    ),
    "slurmd with mounts of its own": Fault(
        FOUND,
        f"systemd: {OWN_MOUNTS}",
        guest=lambda at: slurmd_apart(),
        made_up=lambda at: linked(at.file("/proc/55/ns/mnt"), "mnt:[2]"),
    ),
    "old kernel": Fault(
        FAILS,
        r"kernel: the kernel is [2-5]\.[0-9]\S*: 5\.14 is the oldest that can do this",
        guest=lambda at: through("setarch", "--uname-2.6"),
        made_up=lambda at: kernel_called("5.10.0", at),
    ),
    "cgroup v1": on_both(
        FOUND,
        r"cgroup: /sys/fs/cgroup is not the unified hierarchy \(cgroup v2\): boot with systemd\.unified_.*=1",
        lambda at: covered(at.file("/sys/fs/cgroup"), "tmpfs", "mode=755"),
    ),
    "no scope of slurmd's": on_both(
        FAILS,
        r"cgroup: slurmd has made no slurmstepd.scope: set ProctrackType=proctrack/cgroup and, .*",
        lambda at: covered(at.scope.parent, "tmpfs", "mode=755"),
    ),
    "no pids controller": on_both(
        FAILS,
        r"cgroup: slurmstepd.scope lacks the controllers pids: let systemd delegate them .*",
        lambda at: covered(at.scope, "tmpfs", "mode=755", cgroup_controllers="cpuset cpu io memory\n"),
    ),
    "overlay not loaded": Fault(
        FAILS,
        r"modules: the kernel module overlay is not loaded: modprobe overlay, at boot by .*",
        guest=lambda at: unloaded("overlay"),
        made_up=lambda at: written(at.file("/proc/filesystems"), "\text4\n"),
    ),
    "no module veth": Fault(
        FAILS,
        r"modules: this kernel has no module veth: install the rest of the kernel's modules",
        guest=lambda at: both(unloaded("veth"), edited(at.dependencies, r"^.*/veth\.ko.*$", "")),
        made_up=lambda at: away(at.file("/sys/module/veth")),
    ),
    "no /dev/fuse": on_both(
        FAILS,
        r"devices: /dev/fuse is missing: modprobe fuse, at boot by config/modules-load.d/moorage.conf",
        lambda at: away(at.file("/dev/fuse")),
    ),
    "/dev/net/tun closed": on_both(
        FAILS,
        r"devices: users may not open /dev/net/tun: chmod 666 /dev/net/tun, at boot by a udev rule",
        lambda at: mode(at.file("/dev/net/tun"), 0o600),
    ),
    "few user namespaces": on_both(
        FAILS,
        r"sysctl: user.max_user_namespaces is 10: set it to 256 or more, as config/sysctl.d/.* does",
        lambda at: written(at.sysctl("user/max_user_namespaces"), "10"),
    ),
    "few inotify instances": on_both(
        FAILS,
        r"sysctl: fs.inotify.max_user_instances is 128: set it to 512 or more, .*",
        lambda at: written(at.sysctl("fs/inotify/max_user_instances"), "128"),
    ),
    "few keys": on_both(
        FAILS,
        r"sysctl: kernel.keys.maxkeys is 200: set it to 1000 or more, .*",
        lambda at: written(at.sysctl("kernel/keys/maxkeys"), "200"),
    ),
    "no user namespaces": on_both(
        FAILS,
        r"sysctl: kernel.unprivileged_userns_clone is 0: set it to 1, .*",
        lambda at: written(at.sysctl("kernel/unprivileged_userns_clone"), "0"),
    ),
    "user namespaces confined": made_up(
        FOUND,
        r"apparmor: AppArmor keeps Podman from making user namespaces: .*",
        lambda at: both(
            instead(at.sysctl("kernel/apparmor_restrict_unprivileged_userns"), "1\n"),
            written(at.file("/sys/kernel/security/apparmor/profiles"), "other (enforce)\n"),
        ),
    ),
    "clock lost": Fault(
        FOUND,
        r"clock: the clock says 2001-09-09, and Moorage was installed on 20\d\d-\d\d-\d\d: set it, and let .*",
        guest=lambda at: clock_lost(),
        made_up=lambda at: attribute("time.time", lambda: LATE),
    ),
    "clock not right yet": made_up(
        ADVICE,
        r"clock: the service that keeps this node's clock has not got it right yet: .*",
        lambda at: both(
            linked(at.unit("multi-user.target.wants/chrony.service"), "/usr/lib/systemd/system/chrony.service"),
            attribute("moorage.doctor.clock.in_step", lambda: False),
        ),
    ),
}
