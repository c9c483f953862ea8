"""Subordinate ids by a formula: nobody's range meets another's, systemd's, or a real id."""

from __future__ import annotations

import itertools

import pytest
from ansible.errors import AnsibleFilterError

from support.role import filters

SIZE = 65536
# https://systemd.io/UIDS-GIDS: containers, foreign files.
SYSTEMS = ((524288, 1879048191), (2147352576, 2147418111))
subids = filters("subids")
ALICE, BOB, CAROL = {"alice": ["x", "1001"]}, {"bob": ["x", "1002"]}, {"carol": ["x", "1003"]}


@pytest.mark.parametrize(
    ("uid", "lowest", "highest", "found"),
    [
        (1000, 1000, 60000, 1879048192),
        (1001, 1000, 60000, 1879048192 + SIZE),
        (1000, 1000, 1879048191, 1879048192),
        (1000, 1000, 1879048192, 1879048192 + SIZE),
        (1000, 1000, 2000000000, 2000027648),
        (5093, 1000, 60000, 2147287040),
    ],
)
def test_the_formula(uid: int, lowest: int, highest: int, found: int) -> None:
    assert subids.start(uid, lowest, highest) == found
    assert found % SIZE == 0


@pytest.mark.parametrize("highest", [0, 60000, 1879048192, 2_100_000_000])
def test_all_ranges_lie_above_the_sites_ids_beside_systemds_and_apart(highest: int) -> None:
    room = (subids.HIGHEST_END - subids.start(1000, 1000, highest)) // SIZE
    starts = [subids.start(1000 + number, 1000, highest) for number in range(room)]
    assert min(starts) > highest
    assert all(later - earlier == SIZE for earlier, later in itertools.pairwise(starts))
    for low, high in SYSTEMS:
        assert all(start > high or start + SIZE - 1 < low for start in starts)


@pytest.mark.parametrize(
    ("uid", "lowest", "highest", "words"),
    [
        (5094, 1000, 60000, "user id 5094 has no range: there is room for 4094 from 1000 on; let a directory"),
        (999, 1000, 60000, "user id 999 is below moorage_subids.lowest_uid, 1000"),
        (1000, 1000, 2147352576, "there is room for 0 from 1000 on"),
    ],
)
def test_what_has_no_range_is_told(uid: int, lowest: int, highest: int, words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        subids.start(uid, lowest, highest)


def test_who_has_one_keeps_it() -> None:
    there = "alice:100000:65536\n1002:165536:65536\n\n# nobody\nbroken\n"
    files = {"/etc/subuid": there, "/etc/subgid": "alice:100000:65536"}
    found = subids.missing(files, ALICE | BOB | CAROL, 1000, 60000)
    assert [(one["file"], one["line"].partition(":")[0]) for one in found] == [
        ("/etc/subuid", "carol"),
        ("/etc/subgid", "bob"),
        ("/etc/subgid", "carol"),
    ]
    assert found[0]["line"] == "carol:1879244800:65536"


def test_again_there_is_nothing_to_do() -> None:
    text = "\n".join(subids.lines(ALICE | BOB, 1000, 60000))
    assert subids.missing({"/etc/subuid": text}, ALICE | BOB, 1000, 60000) == []


def test_no_range_meets_one_that_is_there() -> None:
    with pytest.raises(AnsibleFilterError, match=r"the range of carol, 1879244800 to 1879310335, would meet .* eve"):
        subids.missing({"/etc/subuid": "eve:1879310335:10"}, CAROL, 1000, 60000)
