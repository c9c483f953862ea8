"""What a finding means for the node, by who can act on it and by its kind."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from moorage.node.checks import EACH_JOB, EACH_USER, Check
from moorage.node.config.schema import Config
from moorage.node.finding import MEANINGS, OWNERS, Finding, Kind, Owner
from moorage.root.prolog import Known, exit_code

DRAIN = Config(node_fault="drain")


def finding(owner: Owner, kind: Kind) -> Finding:
    return Finding("kernel", "the kernel is old", "boot another", owner, kind)


def test_every_pair_has_a_meaning() -> None:
    assert set(MEANINGS) == set(product(get_args(Owner), get_args(Kind)))
    assert get_args(Owner) == OWNERS


@pytest.mark.parametrize(
    ("owner", "kind", "word", "drains"),
    [
        ("node", "fault", "node", True),
        ("site", "fault", "node", True),
        ("user", "fault", "user", False),
        *((owner, kind, kind, False) for owner in OWNERS for kind in ("room", "leftover", "advice")),
    ],
)
def test_only_faults_of_node_and_site_drain(owner: Owner, kind: Kind, word: str, drains: bool) -> None:
    found = finding(owner, kind)
    assert (found.fault, found.drains) == (word, drains)
    assert exit_code([found], Known(DRAIN, shim=True)) == drains


def test_as_json_has_it() -> None:
    assert finding("user", "room").as_dict() == {
        "check": "kernel",
        "cause": "the kernel is old",
        "remedy": "boot another",
        "owner": "user",
        "kind": "room",
        "code": "",
        "fault": "room",
    }


def test_a_check_says_whose_its_findings_are() -> None:
    check: Check[None] = Check("kernel", "site", "a.md#b", lambda _: iter([finding("node", "advice")]))
    assert list(check.findings(None)) == [finding("site", "advice")]


def test_checks_have_different_names() -> None:
    names = [check.name for check in EACH_JOB] + [check.name for check in EACH_USER]
    assert len(set(names)) == len(names)
