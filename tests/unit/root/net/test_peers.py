"""Which hosts share a fabric and over which interface, decided from names, addresses and routes."""

from __future__ import annotations

import socket
import threading
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from moorage.common.errors import MoorageError
from moorage.root.net.peers import LONGEST_FILE, Answers, Peers, Route, Rule, look_up, settle

ETHERNET = {f"192.0.2.{number}": "eth0" for number in range(1, 10)}
INFINIBAND = {f"198.51.100.{number}": "ib0" for number in range(1, 10)}
OWN = {"eth0": "192.0.2.1", "ib0": "198.51.100.1", "lo": "127.0.0.1"}


def answers(**names: str) -> Answers:
    return {name: [IPv4Address(text) for text in texts.split()] for name, texts in names.items()}


def settled(found: Answers, own: str = "n1", wanted: str | None = None) -> Peers:
    routes = {IPv4Address(text): Route(by, IPv4Address(OWN[by])) for text, by in {**ETHERNET, **INFINIBAND}.items()}
    return settle(found, own, routes, {by: [IPv4Address(text)] for by, text in OWN.items()}, wanted)


def peers(interface: str, place: int, *hosts: str) -> Peers:
    return Peers(interface, tuple(map(IPv4Address, hosts)), place)


def test_the_interface_is_the_one_that_reaches_the_others() -> None:
    assert settled(answers(n1="192.0.2.1", n2="192.0.2.2")) == peers("eth0", 0, "192.0.2.1", "192.0.2.2")
    assert settled(answers(n1="198.51.100.1", n2="198.51.100.2")).interface == "ib0"


def test_the_order_is_slurms() -> None:
    found = settled(answers(n3="192.0.2.3", n1="192.0.2.1", n2="192.0.2.2"))
    assert found == peers("eth0", 1, "192.0.2.3", "192.0.2.1", "192.0.2.2")


def test_the_configuration_chooses_among_several_addresses() -> None:
    both = answers(n1="192.0.2.1 198.51.100.1", n2="192.0.2.2 198.51.100.2")
    assert settled(both, wanted="ib0") == peers("ib0", 0, "198.51.100.1", "198.51.100.2")
    assert settled(both, wanted="eth0") == peers("eth0", 0, "192.0.2.1", "192.0.2.2")


@pytest.mark.parametrize("own", ["127.0.1.1", "127.0.0.1 127.0.1.1"])
def test_a_host_that_knows_itself_by_its_loopback_takes_the_address_it_sends_with(own: str) -> None:
    assert settled(answers(n1=own, n2="192.0.2.2")) == peers("eth0", 0, "192.0.2.1", "192.0.2.2")


@pytest.mark.parametrize(
    ("found", "wanted", "line"),
    [
        (answers(n2="192.0.2.2", n3="192.0.2.3"), None, "this node, n1, is not among the nodes of the job"),
        (answers(n1="192.0.2.1"), None, "a job on one node has no fabric"),
        (answers(n1="192.0.2.1", n2="203.0.113.1"), None, "node n2 cannot be reached: 203.0.113.1"),
        (answers(n1="192.0.2.1", n2="203.0.113.1"), "eth0", "node n2 has no address on eth0: 203.0.113.1"),
        (answers(n1="192.0.2.1", n2="198.51.100.2"), "eth0", "node n2 has no address on eth0: 198.51.100.2"),
        (
            answers(n1="192.0.2.1", n2="192.0.2.2 192.0.2.3"),
            None,
            "node n2 has more than one address on eth0: 192.0.2.2, 192.0.2.3",
        ),
        (
            answers(n1="192.0.2.1", n2="192.0.2.2", n3="198.51.100.3"),
            None,
            "the nodes of the job are reached by eth0 and ib0:"
            " say in the configuration which interface carries the fabric",
        ),
        (
            answers(n1="192.0.2.1 198.51.100.1", n2="192.0.2.2 198.51.100.2"),
            None,
            "the nodes of the job are reached by eth0 and ib0:"
            " say in the configuration which interface carries the fabric",
        ),
        (answers(n1="192.0.2.9", n2="192.0.2.2"), None, "this node, n1, has no address on eth0: 192.0.2.9"),
        (answers(n1="198.51.100.1", n2="192.0.2.2"), None, "this node, n1, has no address on eth0: 198.51.100.1"),
        (answers(n1="192.0.2.1", n2="192.0.2.1"), None, "nodes n1 and n2 have the same address, 192.0.2.1"),
        (
            answers(n1="192.0.2.1", n2="192.0.2.2", n3="192.0.2.2"),
            None,
            "nodes n2 and n3 have the same address, 192.0.2.2",
        ),
        (answers(n1="192.0.2.1", n2="127.0.0.1"), None, "node n2 cannot be reached: 127.0.0.1"),
    ],
)
def test_what_is_refused(found: Answers, wanted: str | None, line: str) -> None:
    with pytest.raises(MoorageError) as refusal:
        settled(found, wanted=wanted)
    assert str(refusal.value) == line


def test_a_file_instead_of_a_resolver(tmp_path: Path) -> None:
    place = tmp_path / "fabric"
    place.write_text("# the fabric\n192.0.2.1 n1 n1-ib\n\n192.0.2.2\tn2 # second\n192.0.2.3 n3\n198.51.100.2 n2\n")
    assert look_up(["n2", "n1"], Rule(file=place)) == answers(n2="192.0.2.2 198.51.100.2", n1="192.0.2.1")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("192.0.2.1 n1\n", "node n2 is not in PLACE"),
        ("192.0.2.1 n1\nn2 192.0.2.2\n", "node n2 is not in PLACE"),
        ("192.0.2.1 n1\n192.0.2.999 n2\n", "PLACE, line 2: '192.0.2.999' is no IPv4 address"),
        ("192.0.2.1 n1\nfe80::1 n2\n", "PLACE, line 2: 'fe80::1' is no IPv4 address"),
        ("192.0.2.1 n1\n#192.0.2.2 n2\n", "node n2 is not in PLACE"),
    ],
)
def test_what_is_refused_of_a_file(tmp_path: Path, content: str, line: str) -> None:
    place = tmp_path / "fabric"
    place.write_text(content)
    with pytest.raises(MoorageError) as refusal:
        look_up(["n1", "n2"], Rule(file=place))
    assert str(refusal.value) == line.replace("PLACE", str(place))


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_can_write_names_nobodys_peers(tmp_path: Path, mode: int) -> None:
    place = tmp_path / "fabric"
    place.write_text("192.0.2.1 n1\n")
    place.chmod(mode)
    with pytest.raises(MoorageError, match="can be written by others than root"):
        look_up(["n1"], Rule(file=place))


def test_a_file_that_is_too_long_is_not_cut(tmp_path: Path) -> None:
    """Else it might end in the first half of another's name."""
    place = tmp_path / "fabric"
    first, last = "192.0.2.1 n1\n", "192.0.2.2 n23\n"
    place.write_text(first + "#" * (LONGEST_FILE - len(first) - len(last) + 1) + "\n" + last)
    with pytest.raises(MoorageError) as refusal:
        look_up(["n1", "n2"], Rule(file=place))
    assert str(refusal.value) == f"{place} is longer than 1 MiB"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A resolver that knows hosts on two interfaces, and notes what it was asked for."""
    hosts: list[str] = []

    def resolve(host: str, *_: object) -> list[Any]:
        hosts.append(host)
        if not host.endswith("-ib"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (f"198.51.100.{host[1]}", 0))] * 2

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return hosts


def test_a_resolver_is_asked_by_the_sites_rule(asked: list[str]) -> None:
    assert look_up(["n1", "n2"], Rule("{host}-ib")) == answers(n1="198.51.100.1", n2="198.51.100.2")
    assert asked == ["n1-ib", "n2-ib"]


@pytest.mark.usefixtures("asked")
def test_an_unknown_host() -> None:
    with pytest.raises(MoorageError, match=r"^n1 has no address: Name or service not known$"):
        look_up(["n1"], Rule())


@pytest.mark.parametrize("form", ["", "fabric", "{host}{host}", "{node}", "{host!r}"])
def test_a_rule_without_the_host_is_none(form: str) -> None:
    with pytest.raises(MoorageError, match=r"does not hold \{host\} once"):
        look_up(["n1"], Rule(form))


def test_a_resolver_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: let_go.wait(30) and [])
    with pytest.raises(MoorageError, match=r"^the address of n1-ib was not found in 0\.2 s$"):
        look_up(["n1", "n2"], Rule("{host}-ib"), wait=0.2)
    let_go.set()
