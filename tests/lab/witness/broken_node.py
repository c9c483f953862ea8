"""A node that is broken in one way after the other, and what the Prolog makes of it.

    broken_node hooks BREAKAGE...       run the installed Prolog as slurmd would: one JSON line for each
    broken_node during BREAKAGE ARGV...   run a command while this is broken
    broken_node configure SETTING         change the configuration for good

Runs in a guest as root.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from witness.breakage import (
    Breakage,
    Twist,
    away,
    both,
    changed,
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

PROLOG = "/etc/slurm/prolog.d/50-moorage"
EPILOG = "/etc/slurm/epilog.d/50-moorage"
CONFIGURATION = "/etc/moorage/moorage.yaml"
SLURM = "/etc/slurm/slurm.conf"
PLUGSTACK = "/etc/slurm/plugstack.conf"
SHIM = "/usr/lib/x86_64-linux-gnu/slurm-wlm/moorage.so"
SCRATCH = "/var/lib/moorage/scratch"
NETAVARK = "/usr/lib/podman/netavark"
SCOPE = next(iter(Path("/sys/fs/cgroup/system.slice").glob("*slurmstepd.scope")), Path("/no-scope"))
DEPENDENCIES = f"/lib/modules/{os.uname().release}/modules.dep"
RUNTIMES = ("/usr/bin/crun", "/usr/bin/runc", "/usr/sbin/runc")
# A number that no job of the lab reaches.
JOB = 67000000
RUN = Path(f"/run/moorage/{JOB}")
# What slurmd tells its hooks, and no more: no PATH, for one.
TOLD = {
    "SLURMD_NODENAME": "n1",
    "SLURM_CLUSTER_NAME": "moorage",
    "SLURM_CONF": SLURM,
    "SLURM_JOB_GID": "1001",
    "SLURM_JOB_ID": str(JOB),
    "SLURM_JOB_UID": "1001",
    "SLURM_JOB_USER": "alice",
    "SPANK_K8S": "cluster=none",
}
LIMIT = 120

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
    "shim not in plugstack.conf": instead(PLUGSTACK, "# nothing\n"),
    "shim by a relative path": edited(PLUGSTACK, r"/\S*/moorage\.so", "moorage.so"),
    # Slurm.
    "linuxproc": edited(SLURM, "^ProctrackType=.*", "ProctrackType=proctrack/linuxproc"),
    "no task/cgroup": edited(SLURM, "^TaskPlugin=.*", "TaskPlugin=task/affinity"),
    "no Epilog=": edited(SLURM, "^Epilog=.*", ""),
    "no epilog": away(EPILOG),
    "epilog not executable": mode(EPILOG, 0o644),
    "no slurm.conf": told(SLURM_CONF="/etc/slurm/no.conf"),
    # The system.
    "mount namespace of its own": through("unshare", "--mount"),
    "old kernel": through("setarch", "--uname-2.6"),
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
    # The user.
    "root": told(SLURM_JOB_UID="0", SLURM_JOB_USER="root"),
    "two ids": told(SLURM_JOB_UID="4711"),
    "nonsense": told(SPANK_K8S="nonsense"),
    "no subgids": edited("/etc/subgid", "^alice:.*", ""),
    "few subuids": edited("/etc/subuid", "^alice:.*", "alice:100000:1000"),
    "overlapping subuids": edited("/etc/subuid", "^bob:.*", "bob:165000:65536"),
    "subuids with a real user": edited("/etc/subuid", "^alice:.*", "alice:1000:65536"),
    # What is the site's own choice.
    "faults drain": setting(CONFIGURATION, "node_fault: drain"),
    "drain": both(setting(CONFIGURATION, "node_fault: drain"), away("/usr/bin/podman")),
    "drain for a user": both(setting(CONFIGURATION, "node_fault: drain"), edited("/etc/subuid", "^alice:.*", "")),
    "sound again": sound,
}


def prolog(name: str) -> dict[str, object]:
    """What the Prolog ends with, says, leaves as its word for the job, and makes."""
    with BREAKAGES[name]() as twist:
        since, began = time.time(), time.monotonic()
        code, said = _hook(PROLOG, twist)
        seconds = time.monotonic() - began
    made = sorted(entry.name for entry in RUN.iterdir()) if RUN.exists() else []
    refusal = (RUN / "refusal").read_text() if "refusal" in made else ""
    if made == ["refusal"]:
        shutil.rmtree(RUN)
    elif made:
        _hook(EPILOG, ({}, []))
    return {
        "name": name, "code": code, "said": said, "refusal": refusal, "made": made,
        "journal": _journal(since) if code else "", "gone": not RUN.exists(), "seconds": seconds,
    }  # fmt: skip


def _hook(path: str, twist: Twist) -> tuple[int, str]:
    environment, prefix = twist
    ended = subprocess.run(
        [*prefix, path], env={**TOLD, **environment}, cwd="/", stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout


def _journal(since: float) -> str:
    argv = ["journalctl", "--identifier=moorage", "--output=cat", f"--since=@{since:.6f}", "PHASE=prolog"]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def during(name: str, argv: list[str]) -> int:
    with BREAKAGES[name]():
        return subprocess.run(argv, check=False).returncode


def _stop(number: int, frame: FrameType | None) -> None:
    """Whoever ends this program wants the node as it was all the same."""
    sys.exit(128 + number)


for stopping in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(stopping, _stop)
match sys.argv[1:]:
    case ["hooks", *names]:
        for name in names:
            print(json.dumps(prolog(name)), flush=True)
    case ["configure", text]:
        Path(CONFIGURATION).write_bytes(changed(Path(CONFIGURATION).read_bytes(), text))
    case ["during", name, *argv]:
        sys.exit(during(name, argv))
