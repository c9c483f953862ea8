"""The fabric that the containers of a job share over its nodes, and who gets nothing into it.

What somebody puts into it is sent for real, and in the same test once by one who is trusted: that arrives.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from support.figures import Figures
from virtual.jobs.fabric_job import ADDRESS, Victim
from virtual.probes.fabric import LAST_WORD, Message, receiver, send

PRIVILEGED = 700
LOWEST_OF_USERS = 1024
HIGHEST = 65535
FLUSHES = 4
# Rules of the site's are flushed, and it is waited until those of the job are there again, all of them.
FLUSH = """
before=$(nft --stateless list ruleset | grep -c "table .* $1 ")
[ "$before" -ge 3 ] || exit 3
begun=$EPOCHREALTIME
for _ in $(seq "$2"); do
    nft flush ruleset
    until [ "$(nft --stateless list tables | grep -c " $1\\$")" = "$before" ]; do :; done
done
echo "$begun $EPOCHREALTIME"
"""


def test_containers_of_both_nodes_reach_each_other(victim: Victim) -> None:
    said = {name: victim.facts[name].lines[-1] for name in ("there", "back", "lone")}
    number = victim.job.id
    assert said == {"there": f"hand of {number} on n2", "back": f"hand of {number} on n1", "lone": "lone"}


def test_nobody_but_root_of_a_peer_gets_a_frame_in(victim: Victim) -> None:
    """By users of the other node and of the same one, from all kinds of ports; one of these they cannot have."""
    network, first, second = victim.fabric, victim.lab.first.shell, victim.second
    with receiver(second, ADDRESS.format(1), network_of=victim.far) as there:

        def shot(content: str, source: int) -> Message:
            packet = network.forged(content, ADDRESS.format(1), there.hardware_address)
            return Message("10.77.0.2", network.port, packet, source)

        assert send(first, [shot("by root of a peer", PRIVILEGED)]) == [None]
        for shell in (first, second):
            tries = [shot("by a user", source) for source in (0, LOWEST_OF_USERS, HIGHEST, PRIVILEGED)]
            assert send(shell, tries, user="bob") == [None, None, None, "PermissionError"]
        # Its own root is no peer of a node's.
        assert send(second, [shot("by root of the same node", PRIVILEGED)]) == [None]
        victim.say(LAST_WORD)
        assert [one.text for one in there.received()] == ["by root of a peer"]


def test_a_flush_of_the_nodes_rules_is_mended_and_lets_nobody_in(victim: Victim, figures: Figures) -> None:
    """A user floods the fabric from the other node while all rules are flushed, again and again."""
    network, first, second = victim.fabric, victim.lab.first.shell, victim.second
    table = f"moorage-{victim.job.id}"
    with receiver(second, ADDRESS.format(1), network_of=victim.far) as there, ThreadPoolExecutor(1) as aside:
        packet = network.forged("by a user", ADDRESS.format(1), there.hardware_address)
        flood = [Message("10.77.0.2", network.port, packet, times=3000, pause=0.005)]
        flooding = aside.submit(send, first, flood, user="bob")
        said = second.output("timeout", "120", "bash", "-c", FLUSH, "bash", table, str(FLUSHES))
        begun, ended = map(float, said.split())
        assert flooding.result() == [None]
        # The network comes back a moment after its rules.
        victim.say(LAST_WORD, times=20)
        assert there.received() == []
    figures.add("from a flush of all rules until a job's are back", (ended - begun) / FLUSHES, "s")
