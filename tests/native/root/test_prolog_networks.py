"""The Prolog of a job on several nodes, or with this node as its gateway: its networks, and what they fail for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from moorage.common import command
from moorage.common import job as jobs
from moorage.common.deadline import Deadline
from moorage.common.description import Mooring, Segment, WayOut
from moorage.common.errors import code_of
from moorage.common.job import Job
from moorage.linux import mounts
from moorage.linux.links import links
from moorage.node import checks, factcache, slurmconf, uplink
from moorage.node.checks import Surroundings
from moorage.node.config import load
from moorage.node.programs import Program
from moorage.root import prolog, rundir, state
from moorage.root.cleanup import end_of_job, sweep
from moorage.root.net import fabric, job_networks, names
from support.fakes import FakeCommand

USER = 54321
ENVIRON = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_UID": str(USER),
    "SLURM_JOB_GID": str(USER),
    "SLURM_JOB_USER": "nobody-aboard",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURMD_NODENAME": "n2",
    "SPANK_K8S": "cluster=none",
}
JOB = Job.from_hook(ENVIRON)
CONFIG = "node_fault: drain\nscratch:\n  path: /mnt/scratch\n  size: 64M\n  kind: tmpfs\n"
FABRIC = "fabric:\n  hosts: /mnt/hosts\n"
SETTINGS: slurmconf.Settings = {"prologflags": ["Alloc"]}


@pytest.fixture
def ip(fresh_namespaces: None) -> Iterator[IPRoute]:
    """The node n2 at 192.0.2.2, with a way out."""
    with IPRoute() as ip:
        ip.link("add", ifname="eth0", kind="veth", peer="switch")
        for name in ("lo", "eth0", "switch"):
            ip.link("set", index=ip.link_lookup(ifname=name)[0], state="up")
        ip.addr("add", index=ip.link_lookup(ifname="eth0")[0], address="192.0.2.2", prefixlen=24)
        ip.route("add", dst="default", gateway="192.0.2.1")
        yield ip


@pytest.fixture(autouse=True)
def place(ip: IPRoute, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    here = Path("/mnt")
    mounts.mount_tmpfs(here, size=512 << 20, inodes=0, uid=0, gid=0, mode=0o755)
    (here / "scratch").mkdir(mode=0o700)
    (here / "moorage.yaml").write_text(CONFIG + FABRIC)
    (here / "hosts").write_text("".join(f"192.0.2.{number} n{number}\n" for number in range(1, 10)))
    for module, name, value in (
        (jobs, "RUN", here / "run"),
        (jobs, "STATE", here / "state"),
        (load, "PLACE", here / "moorage.yaml"),
        (factcache, "PLACE", here / "run" / "facts.json"),
        (end_of_job, "read", lambda *_: ""),
        (command, "PATH", f"{tmp_path}:{command.PATH}"),
    ):
        monkeypatch.setattr(module, name, value)
    return here


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommand:
    settle(monkeypatch, SETTINGS)
    monkeypatch.setattr(checks, "shim_checks", lambda *_: iter(()))
    monkeypatch.setattr(checks, "node_checks", lambda *_: iter(()))
    FakeCommand(tmp_path, "getsubids", stdout=f"0: nobody-aboard {1 << 30} 65536\n")
    return FakeCommand(tmp_path, "systemctl")


def settle(monkeypatch: pytest.MonkeyPatch, settings: slurmconf.Settings) -> None:
    programs = {name: Program(Path(f"/usr/bin/{name}"), f"{name} 5.4") for name in ("podman", "crun")}
    programs["pasta"] = Program(Path("/usr/bin/pasta"), "pasta 2025_05_03")
    around = Surroundings(programs, None, Path("/usr/bin/srun"), Path("/etc/slurm/slurm.conf"), settings, {})
    monkeypatch.setattr(checks, "look_around", lambda *_: around)


@pytest.fixture
def kernel_uplink(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it was chosen; this network namespace forwards packets."""
    monkeypatch.setattr(uplink, "choose", lambda *_: uplink.Choice("kernel", "the fastest"))
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def run(**changed: str) -> int:
    return prolog.prolog({**ENVIRON, **changed})


def refusal() -> str:
    """The line without its code."""
    assert {path.name for path in JOB.run.iterdir()} == {"refusal", "release"}
    assert job_networks.left(JOB.id) == []
    text = JOB.refusal.read_text()
    return text.replace(f" [{code_of(text)}]", "")


def clear() -> None:
    assert end_of_job.clean_up(JOB.id, Deadline(30)) == []
    assert job_networks.left(JOB.id) == []


def test_a_fabric_is_made_before_the_warden_starts(node: FakeCommand) -> None:
    assert run() == 0
    mooring = Mooring.load(17)
    assert (mooring.nodes, mooring.place, mooring.gateway) == (3, 1, None)
    assert mooring.fabric == Segment("10.89.0.0/16", 1450, "0a:00:00:11:00:02", ("n1", "n2", "n3"))
    known = state.load(17)
    assert known
    assert known.fabric
    assert [str(host) for host in known.fabric.hosts] == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    assert fabric.intact(known.fabric)
    assert job_networks.left(17) == ["moor17v", "moor17s", "moorage-17"]
    assert node.calls == [["start", "moorage-warden@17.service"]]
    clear()


def test_only_the_first_of_them() -> None:
    assert run(SPANK_K8S="cluster=none,nodes=2", SLURMD_NODENAME="n2") == 0
    assert (mooring := Mooring.load(17)).fabric
    assert (mooring.nodes, mooring.place, mooring.fabric.hosts) == (2, 1, ("n1", "n2"))
    clear()


@pytest.mark.parametrize("wanted", ["1", "2"])
def test_a_node_that_takes_no_part_is_left_alone(place: Path, wanted: str, node: FakeCommand) -> None:
    assert run(SPANK_K8S=f"nodes={wanted}", SLURMD_NODENAME="n3") == 0
    assert not JOB.run.exists()
    assert not JOB.state.exists()
    assert (node.calls, job_networks.left(17)) == ([], [])
    clear()


def test_one_of_several_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And needs nothing of what several need."""
    settle(monkeypatch, {})
    assert run(SPANK_K8S="nodes=1", SLURMD_NODENAME="n1") == 0
    assert Mooring.load(17).fabric is None
    clear()


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {"SPANK_K8S": "nodes=4"},
            "nodes=4 is more than this job has, which is 3: submit with --nodes=4, or ask for nodes=3 or leave it out",
        ),
        ({"SLURM_JOB_NODELIST": "n[1-300]"}, "300 nodes are more than --k8s can join: ask for nodes=254 or fewer"),
        (
            {"SLURM_HET_JOB_ID": "16"},
            "this job is heterogeneous, and --k8s is for jobs of one part: submit it as one part",
        ),
    ],
)
def test_a_users_fault_drains_no_node(changed: dict[str, str], line: str) -> None:
    assert run(**changed) == 0
    assert refusal() == f"{line}\n"


def test_without_alloc_the_others_are_not_there_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch, {"prologflags": ["Serial"]})
    assert run() == 0
    assert refusal().startswith("/etc/slurm/slurm.conf lacks PrologFlags=Alloc")


def test_a_network_that_another_job_has() -> None:
    """They differ by 2^24, and nobody is to blame."""
    assert run(SLURM_JOB_ID=str((1 << 24) + 17)) == 0
    assert run() == 0
    assert refusal() == (
        "network 17, which job 17 gets by its number, is in use on this node: submit it again: it gets another number\n"
    )
    assert end_of_job.clean_up((1 << 24) + 17, Deadline(30)) == []


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ("  interface: eth1\n", "node n1 has no address on eth1: 192.0.2.1: see the section fabric of"),
        (
            "  source_ports: 600-1024\n",
            "fabric.port is 339 and fabric.source_ports are 600-1024, and ports from 1024 up are open to",
        ),
        (
            "  port: 1339\n",
            "fabric.port is 1339 and fabric.source_ports are 600-1023, and ports from 1024 up are open to",
        ),
        ("  subnet: 192.0.0.0/16\n", "this node has a route to 192.0.2.0/24, and containers would have 192.0.0.0/16: "),
    ],
)
def test_a_nodes_fault_is_the_sites_to_judge(place: Path, settings: str, line: str) -> None:
    (place / "moorage.yaml").write_text(CONFIG + FABRIC + settings)
    assert run() == 1
    assert refusal().startswith(line)
    assert ": " in refusal()


@pytest.mark.parametrize(
    ("hosts", "line"),
    [
        ("192.0.2.1 n1\n192.0.2.2 n2\n", "node n3 is not in /mnt/hosts: see the section fabric"),
        ("192.0.2.1 n1\n192.0.2.2 n2\n192.0.2.1 n3\n", "nodes n1 and n3 have the same address, 192.0.2.1: see"),
        ("192.0.2.1 n1\n192.0.2.2 n2\n127.0.0.9 n3\n", "node n3 cannot be reached: 127.0.0.9: see"),
    ],
)
def test_peers_that_are_not_on_the_interface(place: Path, hosts: str, line: str) -> None:
    (place / "hosts").write_text(hosts)
    assert run() == 1
    assert refusal().startswith(line)


@pytest.mark.parametrize(
    ("module", "code", "line"),
    [
        (
            "moorage.linux.links.Links.make",
            95,
            "this kernel has no VXLAN, or no nf_tables with the family netdev: modprobe vxlan nf_tables nft_fwd_netdev",
        ),
        (
            "moorage.root.net.fabric._try_forwarding",
            2,
            "the kernel refuses a part of the job's network (No such file or directory):"
            " load the modules of config/modules-load.d/moorage.conf",
        ),
    ],
)
def test_whatever_the_kernel_refuses_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, module: str, code: int, line: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NetlinkError(code)

    monkeypatch.setattr(module, refuse)
    assert run() == 1
    assert refusal() == f"{line}\n"


def test_a_rerun_starts_clean_although_the_old_fabric_lives() -> None:
    assert run(SPANK_K8S="cluster=none,nodes=2") == 0
    assert run(SLURM_JOB_RESTART_COUNT="1", SLURM_JOB_NODELIST="n[2,5]") == 0
    assert (mooring := Mooring.load(17)).fabric
    assert (mooring.restart, mooring.place, mooring.fabric.hosts) == (1, 0, ("n2", "n5"))
    clear()


@pytest.mark.parametrize("forgotten", ["run", "state", "all"])
def test_a_rerun_of_which_nothing_else_is_left(place: Path, forgotten: str) -> None:
    assert run() == 0
    for name in ("run", "state"):
        if forgotten in (name, "all"):
            forget(place, name)
    assert run(SLURM_JOB_RESTART_COUNT="1") == 0
    assert Mooring.load(17).restart == 1
    clear()


def forget(place: Path, name: str) -> None:
    """As if a power cut, or somebody, had taken it."""
    if name == "run":
        for point in sorted(mounts.below(place / "run"), reverse=True):
            subprocess.run(["umount", "--lazy", point], check=True)
    subprocess.run(["rm", "-rf", place / name], check=True)


def test_a_gateway_is_decided_too(kernel_uplink: None) -> None:
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("32768 60999")
    assert run(SLURM_JOB_NODELIST="n2") == 0
    mooring = Mooring.load(17)
    assert (mooring.uplink, mooring.fabric) == ("kernel", None)
    assert mooring.gateway == WayOut("100.96.0.70/30", "100.96.0.69", 1500)
    assert job_networks.left(17) == ["moorage-17"]
    clear()


def test_a_node_that_is_no_gateway(kernel_uplink: None) -> None:
    Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
    assert run() == 1
    assert refusal().startswith(
        "this node does not forward packets, and the uplink kernel needs that: set net.ipv4.ip_forward"
    )


def test_jobs_that_have_taken_all_networks_are_no_fault_of_it(kernel_uplink: None, place: Path, ip: IPRoute) -> None:
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("32768 60999")
    (place / "moorage.yaml").write_text(f"{CONFIG}uplink:\n  pool: 100.96.0.0/24\n")
    for number in range(64):
        ip.route("add", dst=f"100.96.0.{4 * number}/30", gateway="192.0.2.1")
    assert run(SLURM_JOB_NODELIST="n2") == 0
    assert refusal().startswith("no network is free for job 17 in the pool 100.96.0.0/24")


@pytest.mark.parametrize("kind", ["crash", "refusal"])
def test_nothing_is_left_of_one_that_fails(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if kind == "crash":
        monkeypatch.setattr("moorage.linux.links.Links.forward", lambda *_: 1 / 0)
    else:
        FakeCommand(tmp_path, "systemctl").path.write_text('#!/bin/sh\n[ "$1" != start ] || exit 1\n')
    assert run() == 1
    assert refusal()


def test_a_job_on_one_node_does_not_even_import_what_networks_need(node: FakeCommand) -> None:
    code = (
        "import sys, json\n"
        "from moorage import prolog, warden, epilog\n"
        "from moorage.node import hostfiles, uplink\n"
        "from moorage.node.config.schema import Uplink\n"
        # What the Prolog of each job with --k8s looks at.
        "uplink.hindered(hostfiles.Node(), Uplink(allowed=('kernel', 'pasta')))\n"
        "assert not [name for name in sys.modules if name.startswith('pyroute2')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": os.pathsep.join(sys.path)})


def test_what_is_left_without_a_state_is_found_by_the_jobs_number(place: Path, node: FakeCommand) -> None:
    assert run() == 0
    forget(place, "run")
    forget(place, "state")
    assert len(job_networks.left(17)) == 3
    clear()


def test_so_are_rules_alone(place: Path) -> None:
    assert run() == 0
    for name in ("run", "state"):
        forget(place, name)
    with links() as here:
        here.remove(names.links_of(17))
    assert job_networks.left(17) == ["moorage-17"]
    rundir.prepare()
    rundir.refuse(JOB, "as of a job that was refused")
    clear()


@pytest.mark.parametrize(("more", "seconds"), [("", 500.0), ("store:\n  view: idmap\n", 200.0)])
def test_the_others_have_as_long_as_a_prolog_may_take(place: Path, more: str, seconds: float) -> None:
    """Slurm begins with the script once the first node is prepared."""
    (place / "moorage.yaml").write_text(CONFIG + FABRIC + more)
    assert run() == 0
    assert Mooring.load(17).waits.others == seconds


def test_a_node_that_can_have_none_has_none_left(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job that was refused there, for that very reason perhaps."""
    monkeypatch.setattr("moorage.linux.nft.names", refuse_to)
    rundir.prepare()
    rundir.refuse(JOB, "this kernel has no module nf_tables")
    assert end_of_job.clean_up(17, Deadline(30)) == []


def test_so_does_the_sweep(place: Path) -> None:
    assert run() == 0
    forget(place, "run")
    forget(place, "state")
    (found,) = sweep.sweep(Deadline(30), act=False)
    assert str(found) == "job 17 would be removed: only its links are known"
    assert [str(found) for found in sweep.sweep(Deadline(30), act=True)] == [
        "job 17 was removed: only its links are known"
    ]
    assert job_networks.left(17) == []
    assert list(sweep.sweep(Deadline(30), act=True)) == []


@pytest.mark.usefixtures("ip")
def test_after_a_power_cut_there_are_none_to_remove(place: Path) -> None:
    assert run() == 0
    known = state.load(17)
    assert known
    job_networks.remove(17)
    known.changed(boot="00000000-0000-0000-0000-000000000000")
    forget(place, "run")
    assert [str(found) for found in sweep.sweep(Deadline(30), act=True)] == [
        "job 17 was removed: the node has booted since"
    ]


def test_nor_does_a_state_that_cannot_be_understood_keep_it(place: Path) -> None:
    assert run() == 0
    JOB.state.write_text(json.dumps({"job": 17}))
    (left,) = end_of_job.clean_up(17, Deadline(30))
    assert left.what == "state"
    assert job_networks.left(17) == []


def test_what_cannot_be_removed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run() == 0
    with monkeypatch.context() as patch:
        patch.setattr(fabric, "remove", refuse_to)
        left = end_of_job.clean_up(17, Deadline(30))
    assert [str(one) for one in left] == [
        f"network {name} is left: busy" for name in ("moor17v", "moor17s", "moorage-17")
    ]
    clear()


def refuse_to(_: int) -> None:
    raise OSError("busy")
