"""A user's subordinate ids: enough, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.common.job import Job
from moorage.linux.idmap import Range
from moorage.node import subids
from moorage.node.hostfiles import Node
from moorage.node.subids import GIDS, UIDS, Kind, check, parse, probes
from support.fakes import FakeCommand

ALICE = Job(17, 0, 1001, 1001, "alice", "n1", frozenset())
FILES = {
    "etc/subuid": "# comment\nalice:100000:65536\nbob:165536:65536\nbroken\ncarol:x:y\n",
    "etc/subgid": "alice:100000:65536\nbob:165536:65536\n",
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:\nalice:x:1001:1001::/:\n+::::::\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\nbig:x:170000:\n",
    "etc/nsswitch.conf": "passwd: files systemd\ngroup: files\nshadow: sss\n",
}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return changed(Node(tmp_path / "node"), {})


def changed(node: Node, files: dict[str, str]) -> Node:
    for name, text in {**FILES, **files}.items():
        node.path(name).parent.mkdir(parents=True, exist_ok=True)
        node.path(name).write_text(text)
    return node


def directory(kind: Kind, *ids: int) -> Kind:
    """The same kind of ids in a directory that knows these and, like most, will not list them."""

    def look_up(number: int) -> object:
        if number not in ids:
            raise KeyError(number)
        return number

    return Kind(kind.name, kind.file, kind.query, kind.known, look_up)


def found(node: Node, given: list[Range], kind: Kind = UIDS, job: Job = ALICE) -> list[str]:
    findings = (
        list(check(directory(kind), job, given, node)) if kind in (UIDS, GIDS) else list(check(kind, job, given, node))
    )
    assert {finding.fault for finding in findings} <= {"user"}
    return [str(finding) for finding in findings]


@pytest.mark.parametrize(
    "given",
    [
        [Range(100000, 65536)],
        [Range(100000, 1), Range(300000, 65536)],
        [Range(300000, 1000000)],
        [Range(2**32 - 2 - 65536, 65536)],
    ],
)
@pytest.mark.parametrize("kind", [UIDS, GIDS])
def test_good_ranges(node: Node, given: list[Range], kind: Kind) -> None:
    assert found(node, given, kind) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            [],
            "user alice has no subordinate uids on this node: ask the administrator for a range of 65536 (",
        ),
        ([Range(100000, 65535)], "user alice has only 65535 subordinate uids on this node: "),
        ([Range(100000, 40000), Range(300000, 40000)], "user alice has only 40000 subordinate uids"),
        ([Range(110000, 65536)], "the subordinate uids 110000-175535 of user alice meet 165536-231071 of bob: ask the"),
        ([Range(100000, 65537)], "meet 165536-231071 of bob"),
        ([Range(300000, 65536), Range(231071, 1)], "the subordinate uids 231071-231071 of user alice meet"),
        ([Range(0, 65536)], "are not all possible ids"),
        ([Range(2**32 - 65536, 65536)], "are not all possible ids"),
        ([Range(1, 65536)], "contain 65534, which is a real uid"),
        ([Range(65534, 65536)], "contain 65534, which is a real uid"),
    ],
)
def test_bad_ranges(node: Node, given: list[Range], words: str) -> None:
    (line,) = found(node, given)
    assert words in line


def test_groups_are_looked_for_among_groups(node: Node) -> None:
    changed(node, {"etc/subgid": ""})
    (line,) = found(node, [Range(165536, 65536)], GIDS)
    assert "the subordinate gids 165536-231071 of user alice contain 170000, which is a real gid" in line
    assert found(changed(node, {"etc/subuid": ""}), [Range(165536, 65536)], UIDS) == []


def test_the_users_own_id_is_real_wherever_it_is_kept(node: Node) -> None:
    (line,) = found(node, [Range(300000, 65536)], job=Job(17, 0, 300005, 1001, "alice", "n1", frozenset()))
    assert "contain 300005, which is a real uid" in line


def test_a_range_may_be_given_to_the_number_of_a_user(node: Node) -> None:
    assert found(changed(node, {"etc/subuid": "1001:100000:65536\n"}), [Range(100000, 65536)]) == []


@pytest.mark.parametrize("known", [200000, 265535, 210000, 260000])
def test_a_directory_is_asked_where_accounts_may_begin(node: Node, known: int) -> None:
    changed(node, {"etc/nsswitch.conf": "passwd: files sss # and more\n", "etc/subuid": ""})
    (line,) = found(node, [Range(200000, 65536)], directory(UIDS, known))
    assert f"contain {known}, which is a real uid" in line


def test_files_are_not_asked_again(node: Node) -> None:
    assert found(changed(node, {"etc/subuid": ""}), [Range(200000, 65536)], directory(UIDS, 200000)) == []


def test_probes_are_few() -> None:
    assert probes(Range(100001, 65536)) == [100001, 110000, 120000, 130000, 140000, 150000, 160000, 165536]
    assert len(probes(Range(1, 2**31))) == subids.MOST_PROBES


@pytest.mark.parametrize(
    ("said", "ranges"),
    [
        ("0: alice 100000 65536\n1: alice 300000 10\n", [Range(100000, 65536), Range(300000, 10)]),
        ("0: DOMAIN\\alice 100000 65536\n", [Range(100000, 65536)]),
        ("Error fetching ranges\n", []),
        ("", []),
        ("0: alice -5 65536\n", []),
    ],
)
def test_what_getsubids_says(said: str, ranges: list[Range]) -> None:
    assert parse(said) == ranges


def test_getsubids_is_asked_for_both(fake_command: Callable[..., FakeCommand]) -> None:
    getsubids = fake_command("getsubids", stdout="0: alice 100000 65536\n")
    assert subids.granted("alice") == {"uid": [Range(100000, 65536)], "gid": [Range(100000, 65536)]}
    assert getsubids.calls == [["alice"], ["-g", "alice"]]


def test_getsubids_fails_where_there_are_none(fake_command: Callable[..., FakeCommand]) -> None:
    fake_command("getsubids", stderr="Error fetching ranges\n", code=1)
    assert subids.granted("dave") == {"uid": [], "gid": []}


@pytest.mark.parametrize(
    ("ranges", "causes"),
    [
        ("", []),
        ("# nobody\nbroken\nalice:x:1\n", []),
        ("alice:100000:65536\nbob:165536:65536\n", []),
        ("alice:100000:65536\nalice:120000:10\n", []),
        ("root:100000:65536\n0:120000:10\n", []),
        (
            "bob:165535:65536\nalice:100000:65536\n",
            ["the uids 165535-231070 of bob meet 100000-165535 of alice"],
        ),
        (
            "alice:100000:65536\nalice:110000:10\nbob:120000:10\n",
            ["the uids 120000-120009 of bob meet 100000-165535 of alice"],
        ),
        ("alice:1000:65536\n", ["the uids 1000-66535 of alice contain 1001, which is a real uid"]),
        ("alice:65535:65536\n", []),
        ("alice:65534:1\n", ["the uids 65534-65534 of alice contain 65534, which is a real uid"]),
    ],
)
def test_the_whole_file(node: Node, ranges: str, causes: list[str]) -> None:
    findings = list(subids.whole(UIDS, changed(node, {"etc/subuid": ranges})))
    assert [finding.cause for finding in findings] == [f"/etc/subuid: {cause}" for cause in causes]
    assert {finding.fault for finding in findings} <= {"node"}


def test_of_a_thousand_mistakes_some_are_told(node: Node) -> None:
    changed(node, {"etc/subuid": "".join(f"user{number}:100000:65536\n" for number in range(1000))})
    assert len(list(subids.whole(UIDS, node))) == subids.MOST_TOLD
