"""The lab's Slurm is a real one: it accounts, and it holds jobs to what they were given."""

from __future__ import annotations

import time

import pytest

from virtual.guest.cluster import Cluster
from virtual.guest.shell import Shell
from virtual.probes.processes import owner, user_processes

pytestmark = pytest.mark.both_suites

LIMIT = 120.0
EAT = "b = bytearray(400 << 20); print(len(b))"


def srun(shell: Shell, *argv: str, user: str = "alice") -> str:
    return shell.output("srun", "--quiet", *argv, user=user)


def accounted(shell: Shell, job: str, want: str) -> str:
    """What sacct says of the job, once it has heard of its end."""
    deadline = time.monotonic() + LIMIT
    while True:
        said = shell.output(
            "sacct", "--noheader", "--parsable2", "--allocations", "--format=State,ExitCode", f"--jobs={job}"
        )
        if want in said or time.monotonic() > deadline:
            return said
        time.sleep(0.5)


def submit(shell: Shell, script: str, *options: str) -> str:
    return shell.run(
        ["sbatch", "--parsable", "--wait", "--output=/dev/null", *options],
        user="alice", input=f"#!/bin/sh\n{script}\n".encode(), ok=range(256),
    ).stdout.strip()  # fmt: skip


@pytest.mark.parametrize(
    ("script", "said"),
    [("true", "COMPLETED|0:0"), ("exit 7", "FAILED|7:0"), (f"python3 -c '{EAT}'", "OUT_OF_MEMORY|0:125")],
    ids=["success", "failure", "too much memory"],
)
def test_a_job_is_accounted_with_its_end(lab: Cluster, script: str, said: str) -> None:
    shell = lab.first.shell
    assert accounted(shell, submit(shell, script, "--mem=200M"), said) == said


def test_nodes_have_other_names_than_their_hosts(lab: Cluster) -> None:
    assert srun(lab.first.shell, "--nodelist=n1", "sh", "-c", "echo $SLURMD_NODENAME $(hostname)") == "n1 berth1"


def test_a_job_gets_its_cores(lab: Cluster) -> None:
    assert srun(lab.first.shell, "--cpus-per-task=1", "nproc") == "1"
    assert srun(lab.first.shell, "--cpus-per-task=2", "nproc") == "2"


def test_a_job_gets_its_device(lab: Cluster) -> None:
    shell = lab.first.shell
    assert srun(shell, "--gres=lab:1", "sh", "-c", "head -c 3 /dev/lab0 | wc -c") == "3"
    refused = shell.run(["srun", "head", "-c", "3", "/dev/lab0"], user="alice", ok=(1,))
    assert "not permitted" in refused.stderr


def test_cgroup_controllers_reach_the_scope_of_jobs(lab: Cluster) -> None:
    above = "cat /sys/fs/cgroup/$(cut -d: -f3 /proc/self/cgroup | cut -d/ -f1-3)/cgroup.controllers"
    assert {"cpuset", "cpu", "memory", "pids"} <= set(srun(lab.first.shell, "sh", "-c", above).split())


def test_rootless_podman_runs_a_container(lab: Cluster) -> None:
    script = """
        export XDG_RUNTIME_DIR=$(mktemp -d)
        podman load --quiet --input /srv/lab/shell.tar
        podman run --rm --network=none localhost/lab/shell:1 id -u
    """
    assert lab.first.shell.output("sh", "-euc", script, user="alice").splitlines()[-1] == "0"


def test_only_two_users_have_subordinate_ids(lab: Cluster) -> None:
    shell = lab.first.shell
    assert [len(owner(shell, user).subordinate) for user in ("alice", "bob", "carol")] == [65536, 65536, 0]


def test_the_count_of_processes_sees_a_new_one(lab: Cluster) -> None:
    shell = lab.first.shell
    who = owner(shell, "alice")
    before = user_processes(shell, who)
    with shell.lines(["sh", "-c", "echo planted; exec sleep 300"], user="alice") as output:
        assert next(output) == "planted"
        assert "sleep" in {seen.name for seen in user_processes(shell, who) - before}


@pytest.mark.parametrize("lab", ["trixie"], indirect=True)
def test_two_nodes_work_as_one_cluster(lab: Cluster) -> None:
    shell = lab.first.shell
    assert sorted(srun(shell, "--nodes=2", "hostname").split()) == ["berth1", "berth2"]
    srun(shell, "--nodelist=n1", "sh", "-c", "echo shared > ~/shared-home")
    assert srun(shell, "--nodelist=n2", "sh", "-c", "cat ~/shared-home") == "shared"
    assert "1 received" in lab.machine("berth2").shell.output("ping", "-c", "1", "10.77.0.1")
