"""A site reloads its packet filter, and all rules are gone: what passes then, and that they come back."""

from __future__ import annotations

import selectors
import socket
from dataclasses import replace

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from moorage.linux import nft
from moorage.root.net import fabric
from moorage.root.net.rule_watch import Kept, Watch
from support.hosts import arrives
from support.namespaces import inside
from support.segments import FORGED, PORT, Node, flush, from_a_user, from_root, only_the_genuine_arrives


def watch(node: Node) -> Watch:
    with inside(node.host.namespace):
        return Watch([Kept("fabric", lambda: fabric.intact(node.fabric), lambda: fabric.mend(node.fabric))])


def noticed(watch: Watch, node: Node, limit: float = 10) -> list[str]:
    """What the watch puts back once it is told of changes."""
    with selectors.DefaultSelector() as events, inside(node.host.namespace):
        events.register(watch, selectors.EVENT_READ)
        assert events.select(limit), "nobody tells of changes"
        return watch.look()


def test_nothing_passes_without_rules(nodes: list[Node]) -> None:
    """Also before anybody has noticed: the rules are the way."""
    first, second = nodes
    flush(second.host)
    with first.listening() as here, second.listening(0.5) as there:
        from_a_user(first.host, second.host.address, second.forged(FORGED))
        from_root(first.host, second.host.address, second.forged(FORGED), 700)
        here.sendto(b"moored", (second.segment_address, PORT))
        with pytest.raises(TimeoutError):
            there.recv(100)


def test_they_are_put_back(nodes: list[Node]) -> None:
    first, second = nodes
    watching = watch(second)
    flush(second.host)
    with inside(second.host.namespace):
        assert not fabric.intact(second.fabric)
    assert noticed(watching, second) == ["fabric"]
    with inside(second.host.namespace):
        assert fabric.intact(second.fabric)
    with second.listening() as there:
        from_a_user(first.host, second.host.address, second.forged(FORGED))
        only_the_genuine_arrives(nodes, there)
        with first.listening() as here:
            assert arrives(there, here)
    # It is told of its own work, too, and finds nothing more to do.
    assert noticed(watching, second) == []
    watching.close()


@pytest.mark.parametrize("family", [nft.IPV4, nft.NETDEV])
def test_the_link_is_down_until_they_are(nodes: list[Node], monkeypatch: pytest.MonkeyPatch, family: int) -> None:
    """Where only one table has gone, frames would go on passing."""
    first, second = nodes
    states: list[bool] = []

    def is_up() -> bool:
        (link,) = second.host.ip.link("get", index=second.host.index("moor17v"))
        return bool(link["flags"] & 1)

    def noting(*tables: nft.Table) -> None:
        states.append(is_up())
        install(*tables)

    install = nft.install
    monkeypatch.setattr(nft, "install", noting)
    watching = watch(second)
    with inside(second.host.namespace):
        nft.remove(nft.Table(family, "moorage-17"))
    assert noticed(watching, second) == ["fabric"]
    assert (states, is_up()) == ([False], True)
    watching.close()
    with first.listening() as here, second.listening() as there:
        assert arrives(here, there)


def test_a_change_that_is_none_of_ours(nodes: list[Node]) -> None:
    second = nodes[1]
    watching = watch(second)
    with inside(second.host.namespace):
        nft.install(nft.Table(nft.INET, "sites"))
    assert noticed(watching, second) == []
    watching.close()


def test_what_is_told_in_part_is_not_taken_for_gone(nodes: list[Node]) -> None:
    """As it may be while somebody else changes rules of his own: a link would be down for nothing."""
    told = iter([False, True, True])
    with inside(nodes[1].host.namespace):
        watching = Watch([Kept("fabric", lambda: next(told), lambda: pytest.fail("it was there"))])
        assert watching.look() == []
    watching.close()


def test_a_rule_taken_out_of_the_middle(nodes: list[Node]) -> None:
    second = nodes[1]
    watching = watch(second)
    with inside(second.host.namespace):
        table = fabric._guard(second.fabric)
        chain = table.chains[0]
        nft._commit(list(nft._removal(table)))
        fewer = nft.Chain(chain.name, chain.hook, chain.priority, chain.rules[:1])
        nft.install(nft.Table(table.family, table.name, [fewer], table.sets))
    assert noticed(watching, second) == ["fabric"]
    watching.close()
    with second.listening() as there:
        from_a_user(nodes[0].host, second.host.address, second.forged(FORGED))
        only_the_genuine_arrives(nodes, there)


def test_what_cannot_be_put_back_keeps_nothing_else_from_it(nodes: list[Node]) -> None:
    first, second = nodes
    with inside(second.host.namespace):
        gone = Kept("gone", lambda: False, lambda: fabric.mend(replace(second.fabric, job=18)))
        watching = Watch(
            [gone, Kept("fabric", lambda: fabric.intact(second.fabric), lambda: fabric.mend(second.fabric))]
        )
    flush(second.host)
    with pytest.raises(ExceptionGroup) as told:
        noticed(watching, second)
    assert [str(error) for error in told.value.exceptions] == [
        "there is no link moor18v on this node: somebody has removed it"
    ]
    watching.close()
    with first.listening() as here, second.listening() as there:
        assert arrives(here, there)


def test_what_could_not_be_put_back_is_tried_again(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the rules are there by then: the link is still down."""
    first, second = nodes
    watching = watch(second)

    def fail_late(*tables: nft.Table) -> None:
        install(*tables)
        raise NetlinkError(16, "busy")

    install = nft.install
    flush(second.host)
    with monkeypatch.context() as patch:
        patch.setattr(nft, "install", fail_late)
        with pytest.raises(ExceptionGroup):
            noticed(watching, second)
    assert watching.failed == {"fabric"}
    with inside(second.host.namespace):
        assert fabric.intact(second.fabric)
        assert watching.look() == ["fabric"]
    assert watching.failed == set()
    watching.close()
    with first.listening() as here, second.listening() as there:
        assert arrives(here, there)


def test_more_changes_than_it_can_be_told_of(nodes: list[Node]) -> None:
    second = nodes[1]
    watching = watch(second)
    watching.changes.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    for _ in range(50):
        with inside(second.host.namespace):
            nft.install(nft.Table(nft.INET, "sites"))
    flush(second.host)
    assert noticed(watching, second) == ["fabric"]
    watching.close()
