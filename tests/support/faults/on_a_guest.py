"""What is taken from a node, or put in its way: each fault by its name."""

import os
import resource
from pathlib import Path

from support.faults.changes import (
    Breakage,
    away,
    both,
    covered,
    edited,
    instead,
    mode,
    patched,
    saying,
    setting,
    sound,
    sysctl,
    through,
    told,
    unloaded,
)
from support.faults.events import (
    clock_lost,
    dead_job,
    failed,
    limited,
    linked,
    mounted,
    newer,
    on_ramfs,
    overlaid,
    planted,
    routed,
    slurmd_apart,
    stopped,
)
from support.faults.hooks import EPILOG, JOB, PROLOG

CONFIGURATION = "/etc/moorage/moorage.yaml"
SLURM = "/etc/slurm/slurm.conf"
PLUGSTACK = "/etc/slurm/plugstack.conf"
SHIM = "/usr/lib/x86_64-linux-gnu/slurm-wlm/moorage.so"
SCRATCH = "/var/lib/moorage/scratch"
STATES = "/var/lib/moorage/jobs"
STORE = "/var/lib/moorage/store"
IMAGES = f"{STORE}/images/overlay-images/images.json"
# Beside it lies the list of its layers.
DESCRIPTION = next(
    (path for path in Path(IMAGES).parent.glob("*/=*") if b"amd64" in path.read_bytes()), Path("/no-image")
)
LAYER = next(iter(Path(f"{STORE}/images/overlay").glob("*/diff")), Path("/no-layer"))
UNITS = "/etc/systemd/system"
NETAVARK = "/usr/lib/podman/netavark"
SCOPE = next(iter(Path("/sys/fs/cgroup/system.slice").glob("*slurmstepd.scope")), Path("/no-scope"))
DEPENDENCIES = f"/lib/modules/{os.uname().release}/modules.dep"
RUNTIMES = ("/usr/bin/crun", "/usr/bin/runc", "/usr/sbin/runc")

NO_ROOM = "size=16m,mode=700"
NO_INODES = "size=8g,nr_inodes=1,mode=700"

BREAKAGES: dict[str, Breakage] = {
    "sound": sound,
    # The shim, without which nothing could stop the script.
    "no product": away("/opt/moorage"),
    "no prolog": away(PROLOG),
    "no shim": away(SHIM),
    "shim of another release": patched(SHIM, rb"moorage-shim \d\d\.\d\d", b"moorage-shim 23.02"),
    "another plug-in under its name": patched(SHIM, rb"moorage-shim", b"anybody-shim"),
    "prolog not executable": mode(PROLOG, 0o644),
    "shim not in plugstack.conf": instead(PLUGSTACK, "# nothing\n"),
    "shim by a relative path": edited(PLUGSTACK, r"/\S*/moorage\.so", "moorage.so"),
    # Slurm.
    "old slurm": both(
        saying("/usr/sbin/slurmd", "slurm 23.02.7"), patched(SHIM, rb"moorage-shim \d\d\.\d\d", b"moorage-shim 23.02")
    ),
    "few open files": limited(resource.RLIMIT_NOFILE, 1000),
    "linuxproc": edited(SLURM, "^ProctrackType=.*", "ProctrackType=proctrack/linuxproc"),
    "no task/cgroup": edited(SLURM, "^TaskPlugin=.*", "TaskPlugin=task/affinity"),
    "no Epilog=": edited(SLURM, "^Epilog=.*", ""),
    "no Prolog=": edited(SLURM, "^Prolog=.*", ""),
    "no epilog": away(EPILOG),
    "epilog not executable": mode(EPILOG, 0o644),
    "hurried Prolog": edited(SLURM, "^Prolog=", "PrologTimeout=60\nProlog="),
    "hurried Epilog": edited(SLURM, "^Prolog=", "EpilogTimeout=60\nProlog="),
    "no JobAcctGatherType": edited(SLURM, "^JobAcctGatherType=.*", ""),
    "devices for every job": both(
        edited("/etc/slurm/cgroup.conf", "^ConstrainDevices=.*", "ConstrainDevices=no"),
        planted("/etc/moorage/features.d/tape.yaml", "gres: tape\ndevices: [/dev/tape%]\n"),
    ),
    "no slurm.conf": told(SLURM_CONF="/etc/slurm/no.conf"),
    # The system.
    "mount namespace of its own": through("unshare", "--mount"),
    "slurmd with mounts of its own": slurmd_apart,
    "old kernel": through("setarch", "--uname-2.6"),
    "cgroup v1": covered("/sys/fs/cgroup", "tmpfs", "mode=755"),
    "no scope of slurmd's": covered(SCOPE.parent, "tmpfs", "mode=755"),
    "no pids controller": covered(SCOPE, "tmpfs", "mode=755", cgroup_controllers="cpuset cpu io memory\n"),
    "overlay not loaded": unloaded("overlay"),
    "no module veth": both(unloaded("veth"), edited(DEPENDENCIES, r"^.*/veth\.ko.*$", "")),
    "no /dev/fuse": away("/dev/fuse"),
    "/dev/net/tun closed": mode("/dev/net/tun", 0o600),
    "few user namespaces": sysctl("user/max_user_namespaces", "10"),
    "few inotify instances": sysctl("fs/inotify/max_user_instances", "128"),
    "few keys": sysctl("kernel/keys/maxkeys", "200"),
    "no user namespaces": sysctl("kernel/unprivileged_userns_clone", "0"),
    "clock lost": clock_lost,
    # What joins nodes.
    "no PrologFlags": edited(SLURM, "^PrologFlags=.*", ""),
    "no VXLAN": both(unloaded("vxlan"), edited(DEPENDENCIES, r"^.*/vxlan\.ko.*$", "")),
    "everybody's ports": sysctl("net/ipv4/ip_unprivileged_port_start", "500"),
    "route to the containers": routed("10.89.7.0/24"),
    "no such interface": setting(CONFIGURATION, "fabric: {interface: ib7}"),
    # Programs.
    "no podman": away("/usr/bin/podman"),
    "old podman": saying("/usr/bin/podman", "podman version 4.3.1"),
    "mute podman": instead("/usr/bin/podman", "#!/bin/sh\n", 0o755),
    "no runtime": away(*RUNTIMES),
    "old runtimes": both(
        away(*RUNTIMES), saying("/usr/bin/crun", "crun version 1.8.1"), saying("/usr/bin/runc", "runc version 1.0.3")
    ),
    "no conmon": away("/usr/bin/conmon"),
    "no netavark": away(NETAVARK),
    "no getsubids": away("/usr/bin/getsubids"),
    "newuidmap without privilege": mode("/usr/bin/newuidmap", 0o755),
    "no policy.json": away("/etc/containers/policy.json"),
    # The way out.
    "no uplink": both(away("/usr/bin/slirp4netns"), setting(CONFIGURATION, "uplink: {allowed: [slirp4netns]}")),
    "old pasta, no other": both(saying("/usr/bin/pasta", "pasta 2023_06_01"), away("/usr/bin/slirp4netns")),
    "uplink that the site forbids": both(
        setting(CONFIGURATION, "uplink: {allowed: [pasta]}"), told(SPANK_K8S="cluster=none,uplink=slirp4netns")
    ),
    # The configuration.
    "typo": setting(CONFIGURATION, "node_fualt: drain"),
    "wrong value": setting(CONFIGURATION, "epilog_limit: soon"),
    "not YAML": setting(CONFIGURATION, "run: [64M"),
    "writable by all": mode(CONFIGURATION, 0o666),
    "feature that is none": planted("/etc/moorage/features.d/tape.yaml", "gres: tape\n"),
    "accounts that nobody checks": setting(CONFIGURATION, "policy: {accounts: [physics]}"),
    # Moorage's own units and places.
    "unit missing": away(f"{UNITS}/moorage-warden@.service"),
    "unit masked": linked(f"{UNITS}/moorage-warden@.service", "/dev/null"),
    "unit not enabled": away(f"{UNITS}/timers.target.wants/moorage-sweep.timer"),
    "unit failed": failed("moorage-trash.service", "/opt/moorage/bin/python3"),
    "timer stopped": stopped("moorage-sweep.timer"),
    "unit changed": newer(f"{UNITS}/moorage-sweep.timer"),
    "states open to all": mode(STATES, 0o755),
    "no room for states": covered(STATES, "tmpfs", "size=512k,mode=700"),
    # Images, and what clusters are made with.
    "store open to all": mode(STORE, 0o755),
    "store on an overlay": overlaid(STORE),
    "store without mapped owners": both(on_ramfs(STORE), setting(CONFIGURATION, "store: {view: idmap}")),
    "list of images damaged": instead(IMAGES, "{"),
    "description of an image damaged": instead(DESCRIPTION, lambda old: old.replace(b"amd64", b"arm64")),
    "layer lost": away(LAYER),
    "no node image": edited(CONFIGURATION, r"^( +image: ).*", r"\1localhost/other:v1.36.3"),
    "no kind": edited(CONFIGURATION, r"^( +kind: ).*", r"\1/opt/none/kind"),
    "old kubectl": saying("/usr/local/bin/kubectl", "Client Version: v1.30.1"),
    "old kind": both(
        planted("/run/old/kind", "#!/bin/sh\necho kind version 0.29.0\n"),
        mode("/run/old/kind", 0o755),
        edited(CONFIGURATION, r"^( +kind: ).*", r"\1/run/old/kind"),
    ),
    # Scratch.
    "no scratch": away(SCRATCH),
    "scratch is a file": instead(SCRATCH, ""),
    "scratch writable by all": mode(SCRATCH, 0o777),
    "scratch open to all": mode(SCRATCH, 0o755),
    "scratch full": covered(SCRATCH, "tmpfs", NO_ROOM),
    "no inodes": covered(SCRATCH, "tmpfs", NO_INODES),
    "scratch read-only": covered(SCRATCH, "tmpfs", "ro,mode=700"),
    "scratch on ramfs": covered(SCRATCH, "ramfs", "mode=700"),
    "no project quotas": setting(CONFIGURATION, f"scratch: {{kind: project, path: {SCRATCH}}}"),
    "no mkfs.ext4": away("/usr/sbin/mkfs.ext4"),
    "no loop devices": away("/dev/loop-control"),
    # What is left of jobs.
    "dead job": dead_job,
    "state that nobody understands": planted(f"{STATES}/{JOB}.json", "?"),
    "scratch of no job": planted(f"{SCRATCH}/{JOB}.img"),
    "mount of no job": mounted(f"/run/moorage/{JOB}"),
    # The user.
    "root": told(SLURM_JOB_UID="0", SLURM_JOB_USER="root"),
    "two ids": told(SLURM_JOB_UID="4711"),
    "nonsense": told(SPANK_K8S="nonsense"),
    "no subgids": edited("/etc/subgid", "^alice:.*", ""),
    "few subuids": edited("/etc/subuid", "^alice:.*", "alice:100000:1000"),
    "overlapping subuids": instead("/etc/subuid", "alice:100000:65536\nbob:165000:65536\n"),
    "subuids with a real user": edited("/etc/subuid", "^alice:.*", "alice:1000:65536"),
    # What is the site's own choice.
    "faults drain": setting(CONFIGURATION, "node_fault: drain"),
    "drain": both(setting(CONFIGURATION, "node_fault: drain"), away("/usr/bin/podman")),
    "drain for a user": both(setting(CONFIGURATION, "node_fault: drain"), edited("/etc/subuid", "^alice:.*", "")),
    "sound again": sound,
}
