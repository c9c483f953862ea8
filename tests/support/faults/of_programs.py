"""Faults of programs, of ways to the outside, of the accounts of users, and of what joins several nodes."""

from support.faults.changes import attribute, away, both, edited, instead, mode, printing, setting, told, written
from support.faults.events import routed, unloaded
from support.faults.fault import Effect, Fault, in_guest, made_up, on_both

NONE, FAILS, DRAINS, AGENT, FOUND, ADVICE = Effect
SEVERAL = "several nodes: jobs on several nodes are refused here: "
ROUTES = "Iface\tDestination\neth0\t00000000\t01004D0A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
UIDS, GIDS = "/etc/subuid", "/etc/subgid"


def route(network: str, mask: str) -> str:
    """What /proc/net/route has where there is such a route besides the default."""
    return f"{ROUTES}eth1\t{network}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n"


PROGRAMS: dict[str, Fault] = {
    "no podman": on_both(
        FAILS, r"podman: Podman is not installed: install podman 4\.9 or newer", lambda at: away(at.program("podman"))
    ),
    "old podman": on_both(
        FAILS,
        r"podman: <podman> is podman version 4\.3\.1: install podman 4\.9 or newer",
        lambda at: printing(at.program("podman"), "podman version 4.3.1"),
    ),
    "mute podman": on_both(
        FAILS,
        r"podman: <podman> is silent about its version: install podman 4\.9 or newer",
        lambda at: instead(at.program("podman"), "#!/bin/sh\n", 0o755),
    ),
    "no policy.json": on_both(
        FAILS,
        r"podman: there is no /etc/containers/policy.json: install the package containers-common",
        lambda at: away(at.file("/etc/containers/policy.json")),
    ),
    "no runtime": on_both(
        FAILS,
        r"runtime: this node has no container runtime: install crun 1\.8\.2 or newer, or runc 1\.1 or newer",
        lambda at: away(*at.runtimes),
    ),
    "old runtimes": on_both(
        FAILS,
        r"runtime: this node has crun version 1\.8\.1, runc version 1\.0\.3: install crun 1\.8\.2 or newer, .*",
        lambda at: both(
            away(*at.runtimes),
            printing(at.program("crun"), "crun version 1.8.1"),
            printing(at.program("runc"), "runc version 1.0.3"),
        ),
    ),
    "old crun": made_up(
        FOUND,
        r"runtime: this node has crun version 1\.8\.1: install crun 1\.8\.2 or newer, .*",
        lambda at: printing(at.program("crun"), "crun version 1.8.1"),
    ),
    "no conmon": on_both(
        FAILS,
        r"programs: conmon is not installed: install the package that has it \(conmon\)",
        lambda at: away(at.program("conmon")),
    ),
    "no netavark": on_both(
        FAILS,
        r"programs: netavark is not installed: install the package that has it \(netavark\)",
        lambda at: away(at.program("netavark")),
    ),
    "no getsubids": on_both(
        FAILS,
        r"programs: getsubids is not installed: install the package that has it \(uidmap or shadow-utils\)",
        lambda at: away(at.program("getsubids")),
    ),
    "newuidmap without privilege": on_both(
        FAILS,
        r"programs: <newuidmap> has no privilege to map ids: chmod u\+s <newuidmap>, .*",
        lambda at: mode(at.program("newuidmap"), 0o755),
    ),
    "old python": made_up(
        FOUND, r"python: Python is .*: .*", lambda at: attribute("moorage.node.programs.OLDEST_PYTHON", (99, 0))
    ),
}
UPLINKS: dict[str, Fault] = {
    "no uplink": on_both(
        FAILS,
        r"uplink: no uplink can be used \(pasta: not allowed .*; slirp4netns: not installed.*\): install one .*",
        lambda at: both(away(at.program("slirp4netns")), setting(at.configuration, "uplink: {allowed: [slirp4netns]}")),
    ),
    "no uplink's program": made_up(
        FOUND,
        r"uplink: no uplink can be used .*",
        lambda at: away(at.program("pasta"), at.program("slirp4netns")),
    ),
    "old pasta, no other": on_both(
        FAILS,
        r"uplink: no uplink can be used \(pasta: too old: .*; slirp4netns: not installed.*\): .*",
        lambda at: both(printing(at.program("pasta"), "pasta 2023_06_01"), away(at.program("slirp4netns"))),
    ),
    "uplink that the site forbids": in_guest(
        FAILS,
        "",
        lambda at: both(
            setting(at.configuration, "uplink: {allowed: [pasta]}"),
            told(SPANK_K8S="cluster=none,uplink=slirp4netns"),
        ),
        job=r"uplink=slirp4netns cannot be had .* \(not allowed .*\): leave uplink away, or .*",
    ),
}
USERS: dict[str, Fault] = {
    "root": in_guest(
        FAILS,
        "",
        lambda at: told(SLURM_JOB_UID="0", SLURM_JOB_USER="root"),
        job=r"root cannot use --k8s: submit the job as a user",
    ),
    "two ids": in_guest(
        FAILS,
        "",
        lambda at: told(SLURM_JOB_UID="4711"),
        job=r"user alice is 4711 to Slurm and 1001 to this node: let both ask the same directory of users",
    ),
    "nonsense": in_guest(
        FAILS,
        "",
        lambda at: told(SPANK_K8S="nonsense"),
        job=r"--k8s: 'nonsense' is neither 0, 1 nor key=value: write it like .*",
    ),
    "no subgids": in_guest(
        FAILS,
        r"[\w. ]+: user alice has no subordinate gids on this node: ask the administrator for a range of 65536 .*",
        lambda at: edited(at.file(GIDS), "^alice:.*", ""),
    ),
    "few subuids": in_guest(
        FAILS,
        r"[\w. ]+: user alice has only 1000 subordinate uids on this node: ask the administrator for a range .*",
        lambda at: edited(at.file(UIDS), "^alice:.*", "alice:100000:1000"),
    ),
    # The doctor looks at all the node's users, a job's Prolog at its own.
    "overlapping subuids": on_both(
        FAILS,
        r"subuid: /etc/subuid: the uids 165000-230535 of bob meet 100000-165535 of alice: move one .*",
        lambda at: instead(at.file(UIDS), "alice:100000:65536\nbob:165000:65536\n"),
        job=r"the subordinate uids 100000-165535 of user alice meet 165000-230535 of bob: ask .*",
    ),
    "subuids that overlap by one": made_up(
        FOUND,
        r"subuid: /etc/subuid: the uids 165535-231070 of bob meet 100000-165535 of alice: move one .*",
        lambda at: instead(at.file(UIDS), "alice:100000:65536\nbob:165535:65536\n"),
    ),
    "subuids with a real user": on_both(
        FAILS,
        r"subuid: /etc/subuid: the uids 1000-66535 of alice contain \d+, which is a real uid: move .*",
        lambda at: edited(at.file(UIDS), "^alice:.*", "alice:1000:65536"),
        job=r"the subordinate uids 1000-66535 of user alice contain \d+, which is a real uid: .*",
    ),
    "subgids with a real group": made_up(
        FOUND,
        r"subgid: /etc/subgid: the gids 165536-231071 of bob contain 170000, which is a real gid: move .*",
        lambda at: instead(at.file("/etc/group"), "root:x:0:\nbig:x:170000:\n"),
    ),
}
NETWORKS: dict[str, Fault] = {
    "no PrologFlags": on_both(
        ADVICE,
        rf"{SEVERAL}<slurm_conf> lacks PrologFlags=Alloc, so other nodes .*: set it, or .*",
        lambda at: edited(at.slurm_conf, "^PrologFlags=.*", ""),
    ),
    "no VXLAN": Fault(
        ADVICE,
        rf"{SEVERAL}this kernel has no module vxlan: install the rest of the kernel's modules",
        guest=lambda at: both(unloaded("vxlan"), edited(at.dependencies, r"^.*/vxlan\.ko.*$", "")),
        made_up=lambda at: edited(at.dependencies, r"^.*/vxlan\.ko.*\n", ""),
    ),
    "no forwarding of frames": made_up(
        ADVICE,
        rf"{SEVERAL}this kernel has no module nft_fwd_netdev: install the rest of the kernel's modules",
        lambda at: edited(at.dependencies, r"^.*/nft_fwd_netdev\.ko.*\n", ""),
    ),
    "everybody's ports": on_both(
        ADVICE,
        rf"{SEVERAL}fabric.port is 339 and .*, and ports from 500 up .*: choose lower ones, or .*",
        lambda at: written(at.sysctl("net/ipv4/ip_unprivileged_port_start"), "500"),
    ),
    "route to the containers": Fault(
        ADVICE,
        rf"{SEVERAL}this node has a route to 10\.89\.7\.0/24, and .*: choose another .*",
        guest=lambda at: routed("10.89.7.0/24"),
        made_up=lambda at: written(at.file("/proc/net/route"), route("0007590A", "00FFFFFF")),
    ),
    "route to the pods": made_up(
        ADVICE,
        r"kubernetes: this node has a route to 10\.244\.1\.0/24, and containers would have 10\.244\.0\.0/16: choose "
        r"another kubernetes\.pods",
        lambda at: written(at.file("/proc/net/route"), route("0001F40A", "00FFFFFF")),
    ),
    "route to Podman's networks": made_up(
        ADVICE,
        r"podman: this node has a route to 10\.88\.0\.0/16, and containers would have 10\.88\.0\.0/16: choose another "
        r"podman\.pool",
        lambda at: written(at.file("/proc/net/route"), route("0000580A", "0000FFFF")),
    ),
    "no such interface": on_both(
        ADVICE,
        rf"{SEVERAL}there is no interface ib7 on this node to carry the fabric: name the .*",
        lambda at: setting(at.configuration, "fabric: {interface: ib7}"),
    ),
    "interface for small packets": made_up(
        ADVICE,
        rf"{SEVERAL}packets on eth0 are too small for a fabric: its MTU is 1300: .*",
        lambda at: both(
            setting(at.configuration, "fabric: {interface: eth0}"),
            written(at.file("/sys/class/net/eth0/mtu"), "1300\n"),
        ),
    ),
    "no file of hosts": made_up(
        ADVICE,
        rf"{SEVERAL}fabric\.hosts: there is no /run/none/hosts: .*",
        lambda at: setting(at.configuration, "fabric: {hosts: /run/none/hosts}"),
    ),
}
