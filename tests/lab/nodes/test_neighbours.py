"""Two jobs side by side on all nodes of theirs: neither reaches the other, nor gets anything into its fabric.

What somebody puts into it is sent for real; that the way it takes does lead to that node is shown by an ordinary port.
"""

from __future__ import annotations

import pytest

from virtual.guest.router import a_router
from virtual.jobs.container_job import IMAGE
from virtual.jobs.fabric_job import ADDRESS, LONE, MOORED, PID, PRELUDE, SHAPE, Victim
from virtual.jobs.facts import SHELL, facts
from virtual.jobs.pause import PAUSE, paused
from virtual.probes.fabric import LAST_WORD, Message, Received, receiver, send

pytestmark = [pytest.mark.long, pytest.mark.parametrize("lab", ["trixie"], indirect=True)]

PRIVILEGED = 700
LOWEST_OF_USERS = 1024
PLAIN = 5001
SECOND = "10.77.0.2"
ROOTS = "by root of the node"
# The same addresses, and the ways out that Podman has itself.
NEIGHBOUR = rf"""
{SHELL}
fact there ask {ADDRESS.format(1)}
fact lone podman exec hand wget -q -T 5 -O - http://{LONE}:8080/
for way in pasta slirp4netns; do
    podman run --quiet --detach --name $way --network $way {IMAGE} sleep 3600
done
fact pids {PID} hand pasta slirp4netns
{PAUSE}
"""
GATEWAY = rf"""
{SHELL}
podman load --quiet --input /srv/lab/shell.tar
podman run --quiet --detach --name hand {IMAGE} sleep 3600
fact pids {PID} hand
{PAUSE}
"""


def test_another_users_job_with_the_same_addresses_is_apart(victim: Victim) -> None:
    """What its containers send with a privileged port into the first one's fabric arrives by no way out."""
    shell = victim.lab.first.shell
    with paused(shell, PRELUDE + NEIGHBOUR, MOORED, "--nodes=2", *SHAPE, user="bob") as job:
        found = facts(job.output)
        assert found["there"].text == f"hand of {job.id} on n2"
        assert found["lone"].code != 0, found["lone"].text
        pids = [int(pid) for pid in found["pids"].lines]
        assert len(pids) == 3
        arrived = tried(victim, dict(zip(("moorage", "pasta", "slirp4netns"), pids, strict=True)))
    # pasta keeps a datagram's port, and has no right to a privileged one: there it is lost.
    assert {"moorage", "pasta", "slirp4netns"} <= {*arrived}
    assert all(one.port >= LOWEST_OF_USERS for one in arrived.values()), arrived


def test_over_the_uplink_kernel_a_privileged_port_is_none(victim: Victim) -> None:
    """A connection from port 700 arrives from another one, and what is for a fabric does not arrive at all."""
    shell = victim.lab.first.shell
    shape = ("--nodes=1", "--nodelist=n1", *SHAPE)
    with a_router(shell), paused(shell, GATEWAY, f"{MOORED},uplink=kernel", *shape, user="bob") as job:
        arrived = tried(victim, {"kernel": int(facts(job.output)["pids"].text)}, kinds=("udp", "tcp"))
    assert {*arrived} == {"kernel", *(privileged("kernel", kind) for kind in ("udp", "tcp"))}
    assert all((one.host, one.port >= LOWEST_OF_USERS) == ("10.77.0.1", True) for one in arrived.values()), arrived


def tried(victim: Victim, ways: dict[str, int], kinds: tuple[str, ...] = ("udp",)) -> dict[str, Received]:
    """Send from the network of each of these processes, with a privileged port, into the victim's fabric.

    There it must not arrive; and to an ordinary port, once more from a port of everybody's. Of what comes there it is
    said from where it has come.
    """
    network, first, second = victim.fabric, victim.lab.first.shell, victim.second
    with receiver(second, ADDRESS.format(1), network_of=victim.far) as inside, receiver(second, port=PLAIN) as outside:
        for way, process in ways.items():
            packet = network.forged(f"over {way}", ADDRESS.format(1), inside.hardware_address)
            messages = [Message(SECOND, network.port, packet, PRIVILEGED)]
            messages += [Message(SECOND, PLAIN, privileged(way, kind).encode(), PRIVILEGED, kind) for kind in kinds]
            messages += [Message(SECOND, PLAIN, way.encode())]
            assert send(first, messages, network_of=process) == [None] * len(messages)
        # What is heard shows nothing unless one who may send from that port is heard with it.
        own = [Message(SECOND, PLAIN, word.encode(), PRIVILEGED) for word in (ROOTS, LAST_WORD)]
        assert send(first, own) == [None, None]
        heard = {one.text: one for one in outside.received()}
        assert heard.pop(ROOTS).port == PRIVILEGED
        victim.say(LAST_WORD)
        assert inside.received() == []
    return heard


def privileged(way: str, kind: str) -> str:
    return f"{way} by {kind}, from a privileged port"
