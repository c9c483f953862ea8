"""Slurm's short form of a list of nodes: what it means, and what is refused in one line."""

from __future__ import annotations

import time

import pytest

from moorage.common.nodelist import BadNodeList, expand

MOST = 254

GOOD = [
    ("n1", ["n1"]),
    ("n1,n2", ["n1", "n2"]),
    ("n[1-3]", ["n1", "n2", "n3"]),
    ("n[1-3,07-10]", ["n1", "n2", "n3", "n07", "n08", "n09", "n10"]),
    ("n[9-11]", ["n9", "n10", "n11"]),
    ("n[099-101]", ["n099", "n100", "n101"]),
    ("n[5]", ["n5"]),
    ("n[0-1]", ["n0", "n1"]),
    ("n[1,3,5]", ["n1", "n3", "n5"]),
    ("n[3,1]", ["n3", "n1"]),
    ("gpu[1-2]-ib[0-1]", ["gpu1-ib0", "gpu1-ib1", "gpu2-ib0", "gpu2-ib1"]),
    ("n[1-2],gpu[1-2]-ib[0-1]", ["n1", "n2", "gpu1-ib0", "gpu1-ib1", "gpu2-ib0", "gpu2-ib1"]),
    ("rack[1-2][1-2]", ["rack11", "rack12", "rack21", "rack22"]),
    ("login-a.example,n1", ["login-a.example", "n1"]),
    ("nid_0001", ["nid_0001"]),
    ("[1-2]n", ["1n", "2n"]),
    ("7", ["7"]),
    (f"n[1-{MOST}]", [f"n{number}" for number in range(1, MOST + 1)]),
]

BAD = [
    ("", "there is no name at character 1"),
    (",", "there is no name at character 1"),
    ("n1,", "there is no name at character 4"),
    (",n1", "there is no name at character 1"),
    ("n1,,n2", "there is no name at character 4"),
    ("n1 n2", "character 3 does not belong there"),
    ("n1\n", "character 3 does not belong there"),
    ("n1\0", "character 3 does not belong there"),
    ("n\u0663", "character 2 does not belong there"),
    ("n[\u0661-\u0663]", "character 2 does not belong there"),
    ("n[1-3", "character 2 does not belong there"),
    ("n1-3]", "character 5 does not belong there"),
    ("n[]", "character 2 does not belong there"),
    ("n[[1-2]]", "character 2 does not belong there"),
    ("n[1-3]]", "character 7 does not belong there"),
    ("n[a-c]", "character 2 does not belong there"),
    ("n[,]", "'' is no range of numbers"),
    ("n[1,]", "'' is no range of numbers"),
    ("n[-]", "'-' is no range of numbers"),
    ("n[1-]", "'1-' is no range of numbers"),
    ("n[-1]", "'-1' is no range of numbers"),
    ("n[1-2-3]", "'1-2-3' is no range of numbers"),
    ("n[3-1]", "the range 3-1 runs backwards"),
    ("n[1-9999999999]", "'1-9999999999' is no range of numbers"),
    ("n[1-255]", "it names more than 254 nodes"),
    ("n[1-999999999]", "it names more than 254 nodes"),
    ("n[1-128],m[1-127]", "it names more than 254 nodes"),
    ("n[1-999999999][1-999999999]", "it names more than 254 nodes"),
    ("n1,n1", "it names a node twice"),
    ("n[1-3,2]", "it names a node twice"),
    ("n[1-2],n2", "it names a node twice"),
    ("-n1", "'-n1' is no name of a node"),
    ("n1,-[1-2]", "'-1' is no name of a node"),
    (".", "'.' is no name of a node"),
    ("../n1", "character 3 does not belong there"),
    ("n1;reboot", "character 3 does not belong there"),
    ("$(id)", "there is no name at character 1"),
    ("{host}", "there is no name at character 1"),
    ("n" * 256, f"'{'n' * 40}...' is no name of a node"),
    ("n," * 32768 + "n", "it is 65537 characters long, 65536 are allowed"),
]


@pytest.mark.parametrize(("text", "names"), GOOD)
def test_what_it_means(text: str, names: list[str]) -> None:
    assert expand(text, MOST) == names


@pytest.mark.parametrize(("text", "reason"), BAD, ids=lambda value: ascii(value[:30]))
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadNodeList) as refusal:
        expand(text, MOST)
    shown = ascii(text if len(text) <= 40 else f"{text[:40]}...")
    assert str(refusal.value) == f"the node list {shown} is not understood: {reason}"
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("text", ["n" + "[1-999999999]" * 5000, "a" * 65536, "n[" * 30000, "[1,]" * 16000])
def test_none_takes_long_to_refuse(text: str) -> None:
    started = time.process_time()
    with pytest.raises(BadNodeList):
        expand(text, MOST)
    assert time.process_time() - started < 1


def test_the_bound_is_the_callers() -> None:
    assert expand("n[1-3]", 3) == ["n1", "n2", "n3"]
    with pytest.raises(BadNodeList, match="it names more than 2 nodes"):
        expand("n[1-3]", 2)
