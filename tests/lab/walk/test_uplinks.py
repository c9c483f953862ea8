"""Each uplink of a job on one node: whom its containers reach, as whom, and how it is chosen by what was measured.

On a node without IPv6, for a user whose own configuration would have Podman do otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from virtual.guest.cluster import Cluster
from virtual.guest.router import RESOLVER, a_router, sysctl
from virtual.guest.shell import Shell
from virtual.jobs.batch import MOORED
from virtual.jobs.container_job import IMAGE
from virtual.jobs.facts import SHELL, Fact, facts
from virtual.jobs.pause import PAUSE, paused
from virtual.probes.fabric import LAST_WORD, Message, Received, receiver, send

# Somebody outside is another guest.
pytestmark = [pytest.mark.long, pytest.mark.parametrize("lab", ["trixie"], indirect=True)]

MOORAGE = "/opt/moorage/bin/moorage"
RECORD = "/var/lib/moorage/uplinks.json"
OPTIONS = ("--nodelist=n1", "--ntasks=1", "--mem=700M")
# Known to the first guest, which is the node's resolver, and while these tests run to the second.
NAME, ADDRESS = "outside.lab", "10.77.0.77"
RESOLVES = ("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--bind-interfaces")
NAMES = "test-names"
MTU = "65520"
FIRST, SECOND, PORT = "10.77.0.1", "10.77.0.2", 5001
PRIVILEGED, LOWEST_OF_USERS = 700, 1024
# pasta keeps a datagram's port, and has no right to this one: there it is lost, elsewhere it comes from another port.
FORBIDDEN = "by udp, from a privileged port"
# As pasta and slirp4netns have it, the outside sees a process of the node's; with `kernel` only the node.
WAYS_OUT = ("pasta", "slirp4netns", "kernel")
HIS = "/home/alice/.config/containers"
HIS_RESOLVER = "192.0.2.53"
HIS_SETTINGS = f"""\
[containers]
netns = "none"
dns_servers = ["{HIS_RESOLVER}"]
env = ["OF_HIS=yes"]
[network]
default_rootless_network_cmd = "nobody"
"""
# systemd's own file of this name says so.
BELIEVING = "/etc/sysctl.d/50-default.conf"
STRICT, LOOSE = "1", "2"
SCRIPT = rf"""
{SHELL}
podman load --quiet --input /srv/lab/shell.tar
podman run --quiet --detach --name hand {IMAGE} sleep 3600
fact pid podman inspect --format '{{{{.State.Pid}}}}' hand
fact env podman exec hand env
fact resolvers podman exec hand cat /etc/resolv.conf
fact outside podman exec hand timeout 60 nslookup {NAME}
fact mtus podman exec hand sh -c 'cat /sys/class/net/*/mtu'
fact description cat "/run/moorage/$SLURM_JOB_ID/job.json"
{PAUSE}
"""


@dataclass(frozen=True)
class Run:
    """What a job's container sent to another guest, and what arrived there."""

    facts: dict[str, Fact]
    sent: list[str | None]
    heard: list[Received]


@pytest.fixture(scope="module")
def shell(lab: Cluster) -> Iterator[Shell]:
    shell = lab.first.shell
    with (
        sysctl(shell, "net.ipv6.conf.all.disable_ipv6", "1"),
        settings_of_his(shell),
        a_router(shell),
        a_resolver(lab.machines[1].shell),
    ):
        yield shell


@contextmanager
def a_resolver(shell: Shell) -> Iterator[None]:
    """On the second guest, where it is also asked by way of the uplink `kernel`."""
    answers = [*RESOLVES, f"--listen-address={RESOLVER}", f"--address=/{NAME}/{ADDRESS}"]
    shell.run(["systemd-run", "--quiet", "--collect", f"--unit={NAMES}", *answers])
    try:
        yield
    finally:
        shell.run(["systemctl", "stop", NAMES])


@contextmanager
def settings_of_his(shell: Shell) -> Iterator[None]:
    write = ["sh", "-euc", 'mkdir -p "$1" && cat >"$1/containers.conf"', "sh", HIS]
    shell.run(write, user="alice", input=HIS_SETTINGS.encode())
    try:
        yield
    finally:
        shell.run(["rm", f"{HIS}/containers.conf"], user="alice")


def ran(lab: Cluster, uplink: str) -> Run:
    first, second = lab.first.shell, lab.machines[1].shell
    with (
        paused(first, SCRIPT, f"{MOORED},uplink={uplink}", *OPTIONS) as job,
        receiver(second, port=PORT) as outside,
    ):
        found = facts(job.output)
        messages = [
            Message(SECOND, PORT, b"by tcp", PRIVILEGED, "tcp"),
            Message(SECOND, PORT, FORBIDDEN.encode(), PRIVILEGED),
            Message(SECOND, PORT, b"by udp"),
        ]
        sent = send(first, messages, network_of=int(found["pid"].text))
        assert send(first, [Message(SECOND, PORT, LAST_WORD.encode())]) == [None]
        return Run(found, sent, outside.received())


@pytest.mark.parametrize("uplink", WAYS_OUT)
def test_containers_reach_the_outside_from_no_privileged_port(lab: Cluster, shell: Shell, uplink: str) -> None:
    run = ran(lab, uplink)
    assert run.sent == [None, None, None]
    assert {one.text for one in run.heard} - {FORBIDDEN} == {"by tcp", "by udp"}
    assert {one.host for one in run.heard} == {FIRST}
    assert all(one.port >= LOWEST_OF_USERS for one in run.heard), run.heard
    assert nothing_of_his(run)
    assert ADDRESS in run.facts["outside"].text, run.facts["outside"]
    assert (MTU in run.facts["mtus"].lines) == (uplink != "kernel"), run.facts["mtus"]
    assert (RESOLVER in run.facts["resolvers"].text.split()) == (uplink == "kernel")


def test_with_none_they_reach_nobody(lab: Cluster, shell: Shell) -> None:
    run = ran(lab, "none")
    assert run.sent[0] is not None
    assert run.heard == []
    assert ADDRESS not in run.facts["outside"].text
    assert nothing_of_his(run)


def test_what_a_system_says_of_all_links_is_not_said_of_a_jobs(shell: Shell) -> None:
    """udev says it once more of each new link, after root's part has had its say."""
    with believing(shell), paused(shell, PAUSE, f"{MOORED},uplink=kernel", *OPTIONS) as job:
        shell.run(["ip", "link", "add", "other", "type", "bridge"])
        shell.run(["udevadm", "settle"])
        found = {link: rp_filter(shell, link) for link in ("other", f"moor{job.id}u")}
        shell.run(["ip", "link", "del", "other"])
    assert found == {"other": LOOSE, f"moor{job.id}u": STRICT}


@contextmanager
def believing(shell: Shell) -> Iterator[None]:
    """As systems are on which each link believes what any other could have brought."""
    shell.run(["tee", BELIEVING], input=f"net.ipv4.conf.*.rp_filter = {LOOSE}\n".encode())
    try:
        yield
    finally:
        shell.run(["rm", BELIEVING])


def rp_filter(shell: Shell, link: str) -> str:
    return shell.output("cat", f"/proc/sys/net/ipv4/conf/{link}/rp_filter")


def test_the_fastest_by_what_was_measured_is_chosen(shell: Shell) -> None:
    said = shell.output(MOORAGE, "net", "measure", "--repeat=1", "--seconds=0.1", "--force").splitlines()
    try:
        kept = json.loads(shell.output("cat", RECORD))
        assert kept["left_out"] == {}
        assert {*kept["uplinks"]} == {*WAYS_OUT}
        assert [line.split()[0] for line in said[1:]] == ["bare", *kept["uplinks"], "kept"]
        assert said[-1] == f"kept in {RECORD}"
        worths = {name: slower_direction(speed) for name, speed in kept["uplinks"].items()}
        fastest = max(worths, key=lambda name: worths[name])
        chosen = shell.output(MOORAGE, "net", "explain").splitlines()[-1]
        assert chosen.startswith(f"chosen: {fastest}, the fastest here: ")
        assert all(f"{name} {worth:.2f}" in chosen for name, worth in worths.items())
        with paused(shell, SCRIPT, MOORED, *OPTIONS) as job:
            description = json.loads(facts(job.output)["description"].text)
        assert f"chosen: {description['uplink']}, {description['uplink_reason']}" == chosen
    finally:
        shell.run(["rm", "--force", RECORD])


def nothing_of_his(run: Run) -> bool:
    return "OF_HIS=yes" not in run.facts["env"].lines and HIS_RESOLVER not in run.facts["resolvers"].text


def slower_direction(speed: dict[str, Any]) -> float:
    """By medians, each of which comes first."""
    return float(min(speed["outward"][0], speed["inward"][0]))
