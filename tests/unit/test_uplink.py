"""Which program carries the containers' packets, and the reason given."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage import uplink
from moorage.config import Uplink
from moorage.errors import UserError
from moorage.node import Node
from moorage.uplink import Offer, choose, explain, hindered

PASTA = {"pasta": "pasta 2025_05_03.587980c-2"}
SLIRP = {"slirp4netns": "slirp4netns version 1.2.1"}
BOTH = PASTA | SLIRP
ANY = Uplink()
SLIRP_FIRST = Uplink(order=("slirp4netns", "pasta"))
ONLY_PASTA = Uplink(allowed=("pasta",))
ONLY_SLIRP = Uplink(allowed=("slirp4netns",))


@pytest.mark.parametrize(
    ("podman", "installed", "rule", "wanted", "driver", "reason"),
    [
        ("5.4.2", BOTH, ANY, None, "pasta", "the first in the site's order"),
        ("5.4.2", BOTH, SLIRP_FIRST, None, "slirp4netns", "the first in the site's order"),
        ("5.4.2", SLIRP, ANY, None, "slirp4netns", "pasta: not installed"),
        ("5.4.2", {**SLIRP, "pasta": "pasta 2023_03_09"}, ANY, None, "slirp4netns", "pasta: too old: pasta 2023_03_09"),
        ("5.4.2", {**SLIRP, "pasta": ""}, ANY, None, "slirp4netns", "pasta: mute when asked for its version"),
        ("4.9.3", BOTH, ANY, None, "slirp4netns", "pasta: needs Podman 5 or newer"),
        ("6.0.0-dev", BOTH, SLIRP_FIRST, None, "pasta", "slirp4netns: Podman 6 and newer cannot use it"),
        ("5.4.2", BOTH, ONLY_SLIRP, None, "slirp4netns", "pasta: not allowed by uplink.allowed"),
        (
            "5.4.2",
            BOTH,
            Uplink(order=("slirp4netns",), allowed=("pasta",)),
            None,
            "pasta",
            "slirp4netns: not allowed by",
        ),
        ("5.4.2", BOTH, Uplink(order=("slirp4netns",)), None, "slirp4netns", "the first in the site's order"),
        ("5.4.2", PASTA, Uplink(order=("slirp4netns",)), None, "pasta", "slirp4netns: not installed"),
        ("5.4.2", BOTH, ANY, "slirp4netns", "slirp4netns", "the user asked for it"),
        ("5.4.2", BOTH, SLIRP_FIRST, "pasta", "pasta", "the user asked for it"),
    ],
)
def test_choices(
    podman: str, installed: dict[str, str], rule: Uplink, wanted: str | None, driver: str, reason: str
) -> None:
    choice = choose(Offer(f"podman version {podman}", installed), rule, wanted)
    assert choice.driver == driver
    assert choice.reason.startswith(reason)


@pytest.mark.parametrize(
    ("podman", "installed", "rule", "wanted", "words"),
    [
        (
            "5.4.2",
            {},
            ANY,
            None,
            "no way for containers to reach the outside (pasta: not installed; slirp4netns: not installed)",
        ),
        ("4.9.3", PASTA, ANY, None, "(pasta: needs Podman 5 or newer; slirp4netns: not installed)"),
        (
            "6.0.0",
            BOTH,
            ONLY_SLIRP,
            None,
            "(pasta: not allowed by uplink.allowed; slirp4netns: Podman 6 and newer cannot use it)",
        ),
        (
            "5.4.2",
            BOTH,
            ONLY_PASTA,
            "slirp4netns",
            "uplink=slirp4netns cannot be had on this node (not allowed by uplink.allowed): leave uplink",
        ),
        ("5.4.2", {}, ANY, "pasta", "uplink=pasta cannot be had on this node (not installed): tell the site"),
        ("5.4.2", BOTH, ANY, "kernel", "uplink=kernel cannot be had on this node (unknown)"),
    ],
)
def test_no_choice(podman: str, installed: dict[str, str], rule: Uplink, wanted: str | None, words: str) -> None:
    with pytest.raises(UserError) as refused:
        choose(Offer(f"podman version {podman}", installed), rule, wanted)
    assert words in str(refused.value)


def test_an_explanation_names_everything() -> None:
    assert explain(Offer("podman version 4.9.3", BOTH), ANY).splitlines() == [
        "Podman here: podman version 4.9.3",
        "site's order: pasta, slirp4netns",
        "pasta: needs Podman 5 or newer",
        "slirp4netns: can be used (slirp4netns version 1.2.1)",
        "chosen: slirp4netns, pasta: needs Podman 5 or newer",
    ]


def test_an_explanation_of_nothing() -> None:
    assert (
        explain(Offer("", {}), ONLY_PASTA)
        .splitlines()[-1]
        .startswith("chosen: nothing, no way for containers to reach")
    )


@pytest.mark.parametrize(
    ("profiles", "rules", "free"),
    [
        ("", "", True),
        ("pasta (complain)\n", "", True),
        ("passt (enforce)\npasta (enforce)\n", "", False),
        ("pasta (enforce)\n", "owner /run/moorage/*/user/** rw,\n", True),
        ("pasta (enforce)\n", "owner /tmp/** rw,\n", False),
    ],
)
def test_apparmor_is_in_the_way_of_pasta(tmp_path: Path, profiles: str, rules: str, free: bool) -> None:
    for name, text in ((uplink.PROFILES, profiles), (uplink.PASTA_RULES, rules)):
        (tmp_path / name[1:]).parent.mkdir(parents=True)
        (tmp_path / name[1:]).write_text(text)
    found = hindered(Node(tmp_path))
    assert found == (
        {} if free else {"pasta": "AppArmor keeps it out of /run/moorage, see /etc/apparmor.d/local/pasta"}
    )
    offer = Offer("podman version 5.4.2", BOTH, found)
    assert choose(offer, ANY).driver == ("pasta" if free else "slirp4netns")
