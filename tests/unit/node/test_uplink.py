"""Which program carries the containers' packets, and the reason given."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.common.errors import UserError
from moorage.node import network_demands, routes, uplink
from moorage.node.config.schema import Uplink
from moorage.node.hostfiles import Node
from moorage.node.uplink import Offer, choose, explain, hindered
from moorage.node.uplink_speed import Speed, Spread

PASTA = {"pasta": "pasta 2025_05_03.587980c-2"}
SLIRP = {"slirp4netns": "slirp4netns version 1.2.1"}
BOTH = PASTA | SLIRP
ANY = Uplink()
SLIRP_FIRST = Uplink(order=("slirp4netns", "pasta"))
ONLY_PASTA = Uplink(allowed=("pasta",))
ONLY_SLIRP = Uplink(allowed=("slirp4netns",))
WITH_KERNEL = Uplink(allowed=("kernel", "pasta", "slirp4netns"))


@pytest.mark.parametrize(
    ("podman", "installed", "rule", "wanted", "driver", "reason"),
    [
        ("5.4.2", BOTH, ANY, None, "pasta", "the first in uplink.order"),
        ("5.4.2", BOTH, SLIRP_FIRST, None, "slirp4netns", "the first in uplink.order"),
        ("5.4.2", SLIRP, ANY, None, "slirp4netns", "pasta: not installed"),
        ("5.4.2", {**SLIRP, "pasta": "pasta 2023_03_09"}, ANY, None, "slirp4netns", "pasta: too old: pasta 2023_03_09"),
        ("5.4.2", {**SLIRP, "pasta": ""}, ANY, None, "slirp4netns", "pasta: silent about its version"),
        ("4.9.3", BOTH, ANY, None, "slirp4netns", "pasta: needs Podman 5 or newer"),
        ("6.0.0-dev", BOTH, SLIRP_FIRST, None, "pasta", "slirp4netns: Podman 6 and newer cannot use it"),
        ("5.4.2", BOTH, ONLY_SLIRP, None, "slirp4netns", "the first in uplink.order"),
        ("5.4.2", BOTH, Uplink(order=("slirp4netns",), allowed=("pasta",)), None, "pasta", "the first in uplink.order"),
        ("5.4.2", BOTH, WITH_KERNEL, None, "kernel", "the first in uplink.order; not measured here: kernel, pasta"),
        ("4.9.3", BOTH, WITH_KERNEL, None, "slirp4netns", "kernel: needs Podman 5 or newer; pasta: needs Podman 5"),
        ("6.0.0", {}, WITH_KERNEL, None, "kernel", "the first in uplink.order"),
        ("5.4.2", BOTH, Uplink(allowed=("none",)), None, "none", "the first in uplink.order"),
        ("5.4.2", BOTH, Uplink(allowed=("none", "pasta"), order=("none",)), None, "pasta", "the first in uplink.order"),
        ("5.4.2", BOTH, Uplink(allowed=("none", "pasta"), by="order"), None, "pasta", "the first in uplink.order"),
        ("5.4.2", {}, Uplink(allowed=("none", "pasta"), by="order"), None, "none", "pasta: not installed"),
        ("5.4.2", BOTH, ONLY_PASTA, "none", "none", "the user asked for it"),
        ("5.4.2", BOTH, WITH_KERNEL, "kernel", "kernel", "the user asked for it"),
        ("5.4.2", BOTH, Uplink(order=("slirp4netns",)), None, "slirp4netns", "the first in uplink.order"),
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
            "no uplink can be used (pasta: not installed; slirp4netns: not installed; kernel: not allowed by up",
        ),
        ("4.9.3", PASTA, ANY, None, "(pasta: needs Podman 5 or newer; slirp4netns: not installed; kernel"),
        (
            "6.0.0",
            BOTH,
            ONLY_SLIRP,
            None,
            "(pasta: not allowed by uplink.allowed; slirp4netns: Podman 6 and newer cannot use it; kernel: not allowed",
        ),
        (
            "5.4.2",
            BOTH,
            ONLY_PASTA,
            "slirp4netns",
            "uplink=slirp4netns cannot be had on this node (not allowed by uplink.allowed): leave uplink",
        ),
        ("5.4.2", {}, ANY, "pasta", "uplink=pasta cannot be had on this node (not installed): tell the site"),
        ("5.4.2", BOTH, ANY, "kernel", "uplink=kernel cannot be had on this node (not allowed by uplink.allowed)"),
        ("5.4.2", BOTH, ANY, "tun", "uplink=tun cannot be had on this node (unknown)"),
        ("4.9.3", BOTH, ANY, "none", "uplink=none cannot be had on this node (needs Podman 5 or newer): leave uplink"),
    ],
)
def test_no_choice(podman: str, installed: dict[str, str], rule: Uplink, wanted: str | None, words: str) -> None:
    with pytest.raises(UserError) as refused:
        choose(Offer(f"podman version {podman}", installed), rule, wanted)
    assert words in str(refused.value)


def test_an_explanation_names_everything() -> None:
    assert explain(Offer("podman version 4.9.3", BOTH), ANY).splitlines() == [
        "Podman here: podman version 4.9.3",
        "order in uplink.order: pasta, slirp4netns, where speeds are not known",
        "pasta: needs Podman 5 or newer",
        "slirp4netns: can be used (slirp4netns version 1.2.1)",
        "kernel: not allowed by uplink.allowed",
        "none: needs Podman 5 or newer",
        "chosen: slirp4netns, pasta: needs Podman 5 or newer",
    ]


def test_an_explanation_of_nothing() -> None:
    assert explain(Offer("", {}), ONLY_PASTA).splitlines()[-1].startswith("chosen: nothing, no uplink can be used")


class TestSpeed:
    """Of those that a site allows and that work, by what was measured."""

    @pytest.mark.parametrize(
        ("rule", "gigabits", "driver", "reason"),
        [
            (
                ANY,
                {"pasta": 3, "slirp4netns": 7},
                "slirp4netns",
                "the fastest here: pasta 3.00, slirp4netns 7.00 Gbit/s",
            ),
            (ANY, {"pasta": 8, "slirp4netns": 7, "kernel": 16}, "pasta", "the fastest here: pasta 8.00, slirp4netns 7"),
            (WITH_KERNEL, {"pasta": 8, "slirp4netns": 7, "kernel": 16}, "kernel", "the fastest here: kernel 16.00,"),
            (WITH_KERNEL, {"pasta": 18, "slirp4netns": 7, "kernel": 16}, "pasta", "the fastest here: kernel 16.00,"),
            (ANY, {"pasta": 0, "slirp4netns": 7}, "slirp4netns", "the fastest here: pasta 0.00, slirp4netns 7.00"),
            (ANY, {"slirp4netns": 7}, "pasta", "the first in uplink.order; not measured here: pasta"),
            (ANY, {}, "pasta", "the first in uplink.order; not measured here: pasta, slirp4netns"),
            (Uplink(by="order"), {"pasta": 3, "slirp4netns": 7}, "pasta", "the first in uplink.order"),
            (ONLY_PASTA, {}, "pasta", "the first in uplink.order"),
        ],
    )
    def test_decides(self, rule: Uplink, gigabits: dict[str, float], driver: str, reason: str) -> None:
        choice = choose(Offer("podman version 5.4.2", BOTH, speeds=speeds(gigabits)), rule)
        assert (choice.driver, choice.reason[: len(reason)]) == (driver, reason)
        assert rule != ONLY_PASTA or choice.reason == reason

    @pytest.mark.parametrize(
        ("rule", "measured", "missing"),
        [
            (ANY, {}, ["pasta", "slirp4netns"]),
            (ANY, {"pasta": 3}, ["slirp4netns"]),
            (ANY, {"pasta": 3, "slirp4netns": 7}, []),
            (Uplink(by="order"), {}, []),
            (ONLY_PASTA, {}, []),
            (Uplink(allowed=("pasta", "none")), {}, []),
        ],
    )
    def test_may_be_wanting(self, rule: Uplink, measured: dict[str, float], missing: list[str]) -> None:
        offer = Offer("podman version 5.4.2", BOTH, speeds=speeds(measured))
        assert uplink.unmeasured(offer, rule) == missing

    def test_counts_in_the_slower_direction(self) -> None:
        """Some pasta has brought 16 Gbit/s in and 0.15 out."""
        measured = {"pasta": speed(0.15, 16.4), "slirp4netns": speed(6.9, 7.2)}
        assert choose(Offer("podman version 5.4.2", BOTH, speeds=measured), ANY).driver == "slirp4netns"

    def test_is_explained(self) -> None:
        offer = Offer("podman version 5.4.2", BOTH, speeds={"pasta": speed(8, 9), "slirp4netns": speed(6, 7)})
        lines = explain(offer, ANY).splitlines()
        assert lines[2] == (
            "pasta: can be used (pasta 2025_05_03.587980c-2;"
            " 8.00 (7.00-9.00) Gbit/s out, 9.00 (8.00-10.00) in, answers in 50.00 (49.00-51.00) us)"
        )
        assert (
            lines[-1] == "chosen: pasta, the fastest here: pasta 8.00, slirp4netns 6.00 Gbit/s in the slower direction"
        )


def speed(outward: float, inward: float) -> Speed:
    return Speed(*(Spread(value, value - 1, value + 1) for value in (outward, inward, 50)))


def speeds(gigabits: dict[str, float]) -> dict[str, Speed]:
    return {driver: speed(each, each) for driver, each in gigabits.items()}


def has(node: Path, name: str, text: str) -> None:
    (node / name[1:]).parent.mkdir(parents=True, exist_ok=True)
    (node / name[1:]).write_text(text)


HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
WAY_OUT = f"{HEAD}eth0\t00000000\t0202000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
NO_WAY_OUT = f"{HEAD}eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
EVERYTHING_6 = "0" * 32 + " 00 " + "0" * 32 + " 00 "
WAY_OUT_6 = f"{EVERYTHING_6}fe80{'0' * 27}1 00000400 00000001 00000000 00000003     eth0\n"
NO_WAY_OUT_6 = f"{EVERYTHING_6}{'0' * 32} ffffffff 00000001 00000000 00200200       lo\n"


@pytest.mark.parametrize(
    ("table", "table_6", "there"),
    [(WAY_OUT, "", True), (NO_WAY_OUT, NO_WAY_OUT_6, False), (NO_WAY_OUT, WAY_OUT_6, True), ("", "", False)],
)
def test_pasta_follows_the_default_route(tmp_path: Path, table: str, table_6: str, there: bool) -> None:
    has(tmp_path, routes.IPV4, table)
    has(tmp_path, routes.IPV6, table_6)
    cause = "this node has no default route"
    assert hindered(Node(tmp_path), ANY) == ({} if there else {"pasta": cause})


@pytest.mark.parametrize(
    ("others", "pool", "expected"),
    [
        ([], "100.96.0.0/16", "100.96.0.0/24"),
        (["0002000A 00FFFFFF"], "10.0.2.0/23", "10.0.3.0/24"),
        (["0002000A 00FFFFFF", "8003000A 80FFFFFF"], "10.0.2.0/23", None),
        (["0000000A 000000FF"], "10.0.0.0/16", None),
        (["0000000A 000000FF"], "100.96.0.0/16", "100.96.0.0/24"),
    ],
)
def test_slirp4netns_takes_no_network_of_the_sites(
    tmp_path: Path, others: list[str], pool: str, expected: str | None
) -> None:
    """As the kernel writes addresses: with the last byte first."""
    lines = [f"eth0\t{one.split()[0]}\t00000000\t0001\t0\t0\t0\t{one.split()[1]}\t0\t0\t0\n" for one in others]
    has(tmp_path, routes.IPV4, WAY_OUT + "".join(lines))
    rule = Uplink(pool=pool)
    assert uplink.between(Node(tmp_path), rule) == expected
    found = hindered(Node(tmp_path), rule)
    assert found == (
        {} if expected else {"slirp4netns": f"uplink.pool is {pool}, and this node has routes to all of it"}
    )
    choice = choose(Offer("podman version 5.4.2", BOTH, found), Uplink(pool=pool, order=("slirp4netns", "pasta")))
    assert choice.driver == ("slirp4netns" if expected else "pasta")


FORWARDS = {
    network_demands.FORWARDING: "1\n",
    network_demands.OF_ALL_LINKS: "0\n",
    network_demands.NODES_PORTS: "32768\t60999\n",
}


class TestKernel:
    @pytest.fixture
    def node(self, tmp_path: Path) -> Node:
        for file, text in FORWARDS.items():
            has(tmp_path, str(file), text)
        has(tmp_path, routes.IPV4, WAY_OUT)
        has(tmp_path, uplink.RESOLVERS[0], "search site\nnameserver 192.0.2.53\n")
        return Node(tmp_path)

    def test_works(self, node: Node) -> None:
        assert hindered(node, WITH_KERNEL) == {}

    def test_needs_a_way_out_for_ipv4(self, node: Node, tmp_path: Path) -> None:
        has(tmp_path, routes.IPV4, NO_WAY_OUT)
        has(tmp_path, routes.IPV6, WAY_OUT_6)
        cause = "this node has no default route for IPv4"
        assert hindered(node, WITH_KERNEL) == {"kernel": cause}

    @pytest.mark.parametrize(
        ("file", "text", "cause"),
        [
            (network_demands.FORWARDING, "0\n", "this node does not forward packets, and the uplink kernel needs that"),
            (network_demands.OF_ALL_LINKS, "2\n", "net.ipv4.conf.all.rp_filter=2 "),
            (network_demands.NODES_PORTS, "1024\t61000\n", "this node's own programs use ports 1024-61000, "),
        ],
    )
    def test_needs_what_the_gateway_needs(self, node: Node, tmp_path: Path, file: Path, text: str, cause: str) -> None:
        has(tmp_path, str(file), text)
        found = hindered(node, WITH_KERNEL)
        assert found["kernel"].startswith(cause)
        assert choose(Offer("podman version 5.4.2", BOTH, found), WITH_KERNEL).driver == "pasta"

    def test_is_not_looked_at_where_it_is_not_allowed(self, node: Node, tmp_path: Path) -> None:
        has(tmp_path, str(network_demands.FORWARDING), "0\n")
        assert hindered(node, ANY) == {}

    @pytest.mark.parametrize(
        ("usual", "behind", "rule", "expected"),
        [
            ("nameserver 192.0.2.53\nnameserver 192.0.2.54\n", "", ANY, ("192.0.2.53", "192.0.2.54")),
            ("nameserver 127.0.0.1\nnameserver 192.0.2.54\n", "", ANY, ("192.0.2.54",)),
            ("nameserver 127.0.0.53\n", "nameserver 192.0.2.55\n", ANY, ("192.0.2.55",)),
            ("nameserver 127.0.0.53\n", "", ANY, ()),
            ("nameserver 2001:db8::53\n", "", ANY, ()),
            ("nameserver\n# nameserver 192.0.2.53\n", "", ANY, ()),
            ("nameserver 127.0.0.53\n", "", Uplink(resolvers=("192.0.2.56",)), ("192.0.2.56",)),
        ],
    )
    def test_resolvers(
        self, node: Node, tmp_path: Path, usual: str, behind: str, rule: Uplink, expected: tuple[str, ...]
    ) -> None:
        has(tmp_path, uplink.RESOLVERS[0], usual)
        has(tmp_path, uplink.RESOLVERS[1], behind)
        assert uplink.resolvers(node, rule) == expected

    def test_needs_resolvers_elsewhere(self, node: Node, tmp_path: Path) -> None:
        has(tmp_path, uplink.RESOLVERS[0], "nameserver 127.0.0.1\n")
        assert hindered(node, WITH_KERNEL)["kernel"].endswith("name others in uplink.resolvers")


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
    has(tmp_path, uplink.PROFILES, profiles)
    has(tmp_path, uplink.PASTA_RULES, rules)
    has(tmp_path, routes.IPV4, WAY_OUT)
    found = hindered(Node(tmp_path), ANY)
    assert found == (
        {} if free else {"pasta": "AppArmor keeps it out of /run/moorage, see /etc/apparmor.d/local/pasta"}
    )
    offer = Offer("podman version 5.4.2", BOTH, found)
    assert choose(offer, ANY).driver == ("pasta" if free else "slirp4netns")
