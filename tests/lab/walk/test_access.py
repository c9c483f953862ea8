"""A job of alice's beside another user on its node, and beside alice herself outside of it: who gets at what."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from virtual.guest.cluster import Cluster
from virtual.guest.many_commands import run_many
from virtual.jobs.batch import MOORED, Job
from virtual.jobs.pause import PAUSE, paused
from virtual.probes.access import places, successes
from virtual.probes.processes import owner, user_processes

SCRIPT = f"""
podman load --quiet --input /srv/lab/shell.tar
podman run --detach --network=none localhost/lab/shell:1 sleep 600
{PAUSE}
"""
CHANGES = {"write", "create", "give_away", "connect"}
OF_A_PROCESS = ("cwd", "environ", "exe", "fd", "maps", "mem", "root", "root/run/moorage")
SITES = ("/etc/moorage", "/etc/slurm", "/run/moorage/facts.json", "/var/lib/moorage", "/opt/moorage/bin")
# Of her tree's own files; the limits are not among them.
DELEGATED = {"cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "memory.oom.group", "memory.reclaim"}
ASK = r"""
import socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.settimeout(60)
    connection.connect(sys.argv[1])
    connection.send(b'{"verb": "%s"}' % sys.argv[2].encode())
    print(connection.recv(4096).decode())
"""


@pytest.fixture(scope="module")
def job(lab: Cluster) -> Iterator[Job]:
    with paused(lab.first.shell, SCRIPT, MOORED, "--nodelist=n1", "--mem=400M") as job:
        yield job


def run(job: Job) -> str:
    return f"/run/moorage/{job.id}"


def tree(job: Job) -> str:
    return str(json.loads(job.shell.output("cat", f"/var/lib/moorage/jobs/{job.id}.json"))["tree"])


def test_another_user_gets_at_nothing_of_the_job(job: Job) -> None:
    """Directories, sockets, configuration, state, scratch, and what the kernel says of its processes."""
    shell = job.shell
    inside = places(shell, run(job), "/var/lib/moorage")
    names = {place.removeprefix(run(job)) for place in inside}
    assert {"/warden.sock", "/user/keeper.sock", "/etc/containers.conf", "/job.json", "/scratch/storage"} <= names
    processes = [
        f"/proc/{seen.pid}/{name}" for seen in user_processes(shell, owner(shell, "alice")) for name in OF_A_PROCESS
    ]
    assert len(processes) > 5 * len(OF_A_PROCESS)
    found = successes(shell, "bob", [*inside, *processes])
    # The directory of the installation itself is no secret.
    assert found in ({}, {"/var/lib/moorage": {"read", "enter"}}, {"/var/lib/moorage": {"enter"}})


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_nobody_changes_what_is_the_sites(job: Job, user: str) -> None:
    found = successes(job.shell, user, places(job.shell, *SITES))
    assert {place: ways for place, ways in found.items() if ways & CHANGES} == {}
    assert not any(place.startswith(("/var/lib/moorage/", "/run/moorage/facts.json")) for place in found)


def test_the_owner_changes_nothing_of_roots_part(job: Job) -> None:
    top = run(job)
    found = successes(job.shell, "alice", places(job.shell, top))
    hers = (f"{top}/user", f"{top}/scratch")
    assert {"read", "create", "enter", "give_away"} == found[hers[0]] == found[hers[1]]
    # The node's images are there to be read, and to be read alone.
    images = f"{top}/images"
    assert f"{images}/overlay" in found
    assert not any(ways & CHANGES for place, ways in found.items() if place.startswith(images))
    elsewhere = {place: ways for place, ways in found.items() if not place.startswith((*hers, images))}
    assert {place.removeprefix(top): ways for place, ways in elsewhere.items()} == {
        "": {"enter"},
        "/etc": {"read", "enter"},
        "/etc/containers.conf": {"read"},
        "/etc/registries.conf": {"read"},
        "/etc/storage.conf": {"read"},
        "/bin": {"read", "enter"},
        "/bin/podman": {"read"},
        # Links into the installation, by which the job keeps its release.
        "/bin/moorage": {"read", "follow"},
        "/release": {"read", "enter", "follow"},
        "/helpers": {"read", "enter"},
        "/job.json": {"read"},
        "/log": {"read"},
        # The file is hers; what it does for her is the next test's.
        "/warden.sock": {"connect", "give_away"},
    }


def test_the_warden_serves_nobody_outside_of_the_job(job: Job) -> None:
    verbs = ("lend", "delegate", "usage", "tell", "shutdown")
    asked = [["python3", "-c", ASK, f"{run(job)}/warden.sock", verb] for verb in verbs]
    for end in run_many(job.shell, asked, "alice"):
        assert end.code == 0
        assert [*json.loads(end.stdout)] == ["error"], end.stdout
    for end in run_many(job.shell, asked, "bob"):
        assert end.stdout == ""
        assert "PermissionError" in end.stderr
    # Root may ask what is used, and nothing else.
    answers = [[*json.loads(end.stdout)] for end in run_many(job.shell, asked)]
    assert answers == [["ok"] if verb == "usage" else ["error"] for verb in verbs]


def test_the_owner_cannot_change_the_limits_of_her_tree(job: Job) -> None:
    top = tree(job)
    files = [place for place in places(job.shell, top, deepest=1) if "." in place.rpartition("/")[2]]
    for user, allowed in (("alice", DELEGATED), ("bob", set[str]())):
        found = successes(job.shell, user, files)
        written = {place.removeprefix(f"{top}/") for place, ways in found.items() if ways & CHANGES}
        assert written == allowed & {place.removeprefix(f"{top}/") for place in files}
