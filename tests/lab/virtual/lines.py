"""What is said of a node that is broken: one line, with what to do, for each breakage by its name."""

from __future__ import annotations

CONFIGURATION = "/etc/moorage/moorage.yaml"
SCRATCH = "/var/lib/moorage/scratch"

# What the job is told, as a regular expression; the hook ends with 0, and the node goes on.
FAILS = {
    "old slurm": r"this node runs slurm 23\.02\.7: install Slurm 23\.11 or newer",
    "linuxproc": r"/etc/slurm/slurm.conf has ProctrackType=proctrack/linuxproc: let proctrack/cgroup be in it, .*",
    "no task/cgroup": r"/etc/slurm/slurm.conf has TaskPlugin=task/affinity: let task/cgroup be in it, and .*",
    "no Epilog=": r"no Epilog= of /etc/slurm/slurm.conf runs 50-moorage: add the line Epilog=/etc/slurm/epilog.d/\*.*",
    "no epilog": r"no Epilog= of /etc/slurm/slurm.conf runs 50-moorage: add the line .*",
    "epilog not executable": r"/etc/slurm/epilog.d/50-moorage cannot be executed: chmod 755 /etc/.*",
    "mount namespace of its own": r"slurmd runs in a mount namespace of its own: take PrivateTmp=, .* out of .*",
    "old kernel": r"the kernel is 2\.6\..*: boot Linux 5\.14 or newer",
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
    "mute podman": r"/usr/bin/podman is silent about its version: install podman 4\.9 or newer",
    "no runtime": r"this node has no container runtime: install crun 1\.8\.2 or newer, or runc 1\.1 or newer",
    "old runtimes": r"this node has crun version 1\.8\.1, runc version 1\.0\.3: install crun 1\.8\.2 or newer, .*",
    "no conmon": r"conmon is not installed: install the package that has it \(conmon\)",
    "no netavark": r"netavark is not installed: install the package that has it \(netavark\)",
    "no getsubids": r"getsubids is not installed: install the package that has it \(uidmap or shadow-utils\)",
    "newuidmap without privilege": r"/usr/bin/newuidmap has no privilege to map ids: chmod u\+s /usr/bin/newuidmap, .*",
    "no policy.json": r"there is no /etc/containers/policy.json: install the package containers-common",
    "no uplink": r"no uplink can be used .* \(pasta: not allowed .*; slirp4netns: not installed.*\): install one .*",
    "old pasta, no other": r"no uplink can be used .* \(pasta: too old: .*; slirp4netns: not installed.*\): .*",
    "uplink that the site forbids": r"uplink=slirp4netns cannot be had .* \(not allowed .*\): leave uplink away, or .*",
    "typo": rf"{CONFIGURATION}:\d+: there is no key node_fualt: did you mean node_fault\?",
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
    "no slurm.conf": r"/etc/slurm/no.conf names neither prologs nor plug-ins: see that slurmd's SLURM_CONF names .*",
    "root": r"root cannot use --k8s: submit the job as a user",
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
# What no hook sees, and a job's own agent tells.
TOLD_BY_THE_AGENT = {
    "few open files": r"`ulimit -Hn` allows 1000 open files where 1024 are needed: ask the site to raise that .*",
}
# What no job is told, or not in these words: the doctor's alone.
FOUND = {
    "prolog not executable": r"/etc/slurm/prolog.d/50-moorage cannot be executed: chmod 755 /etc/.*",
    "no Prolog=": r"no Prolog= of /etc/slurm/slurm.conf runs 50-moorage: add the line Prolog=/etc/slurm/prolog.d/\*.*",
    "hurried Prolog": r"/etc/slurm/slurm.conf has PrologTimeout=60, and our Prolog may take [0-9]+ s: make it more, .*",
    "hurried Epilog": r"/etc/slurm/slurm.conf has EpilogTimeout=60, and our Epilog may take 60 s: make it more, .*",
    "slurmd with mounts of its own": r"slurmd runs in a mount namespace of its own: take PrivateTmp=, .* out of .*",
    "cgroup v1": r"/sys/fs/cgroup is not the unified hierarchy \(cgroup v2\): boot with systemd\.unified_.*=1",
    "clock lost": r"the clock says 2001-09-09, and Moorage was installed on 20\d\d-\d\d-\d\d: set it, and let .*",
    "feature that is none": r"/etc/moorage/features.d/tape.yaml:1: which job has tape, only its devices tell: .*",
    "accounts that nobody checks": r"policy.accounts refuses nobody: Slurm does not .*: AccountingStorageEnforce=.*",
    "unit missing": r"moorage-warden@\.service is not installed: put config/moorage-warden@\.service into /etc/.*",
    "unit masked": r"moorage-warden@\.service is masked: systemctl unmask moorage-warden@\.service",
    "unit not enabled": r"moorage-sweep\.timer is not enabled: systemctl enable --now moorage-sweep\.timer",
    "unit failed": r"moorage-trash\.service has failed: see why: journalctl -u .*; then systemctl restart .*",
    "timer stopped": r"moorage-sweep\.timer is enabled and not running: systemctl start moorage-sweep\.timer",
    "unit changed": r"moorage-sweep\.timer has changed since systemd read it: systemctl daemon-reload",
    "states open to all": r"the jobs' states: others than root can enter /var/lib/moorage/jobs: chmod 700 .*",
    "no room for states": r"the disk of /var/lib/moorage/jobs is full: make room: .*",
    "store open to all": r"/var/lib/moorage/store is not root's alone: chown root .*; chmod 700 .*",
    "store on an overlay": r"the store /var/lib/moorage/store lies on an overlay, .*: set store.path to .*",
    "store without mapped owners": r"store.view is idmap, and mapped mounts do not work .*: set it to auto or copy",
    "list of images damaged": r"the list of images in /var/lib/moorage/store/images is damaged .*: fill .*",
    "description of an image damaged": r"image \S+: its description is not the one it came with: remove the image, .*",
    "layer lost": r"image \S+: layer \w+ has lost its files: remove the image, and add it again: .*",
    "no node image": r"the store has no image localhost/other:v1\.36\.3: moorage image add, then moorage image prepare",
    "no kind": r"there is no program /opt/none/kind: install it, or name it in kubernetes\.kind",
    "old kind": r"/run/old/kind is kind version 0\.29\.0: install kind 0\.33 or newer",
    "dead job": r"job 67000000 has not been cleaned up: its processes are gone: moorage sweep --now",
    "state that nobody understands": r"/var/lib/moorage/jobs/67000000\.json cannot be understood: look for what .*",
    "scratch of no job": rf"{SCRATCH}/67000000\.img is left of a job that has no state here: rm -rf {SCRATCH}/.*",
    "mount of no job": r"/run/moorage/67000000 is mounted, and that job has no state here: umount --lazy .*",
    # Of all the node's users, not of the one whose job it is.
    "overlapping subuids": r"/etc/subuid: the uids 165000-230535 of bob meet 100000-165535 of alice: move one .*",
    "subuids with a real user": r"/etc/subuid: the uids 1000-66535 of alice contain \d+, which is a real uid: move .*",
}
SEVERAL = "jobs on several nodes are refused here: "
# No fault: jobs start, on one node at least.
ADVICE = {
    "old kubectl": r"kubectl says Client Version: v1\.30\.1, which is too far from Kubernetes 1\.36\.\d.*: install .*",
    "no JobAcctGatherType": r"/etc/slurm/slurm.conf has JobAcctGatherType=jobacct_gather/none, so sacct .*: set .*",
    "devices for every job": r"/etc/slurm/cgroup.conf lacks ConstrainDevices=yes, so .*: tape: set it .*",
    "no PrologFlags": rf"{SEVERAL}/etc/slurm/slurm.conf lacks PrologFlags=Alloc, so other nodes .*: set it, or .*",
    "no VXLAN": rf"{SEVERAL}this kernel has no module vxlan: install the rest of the kernel's modules",
    "everybody's ports": rf"{SEVERAL}fabric.port is 339 and .*, and from 500 on .*: choose lower ones, or .*",
    "route to the containers": rf"{SEVERAL}this node has a route to 10\.89\.7\.0/24, and .*: choose another .*",
    "no such interface": rf"{SEVERAL}there is no interface ib7 on this node to carry the fabric: name the .*",
}
