"""What Podman makes its networks of: what the site gives, without what the node has routes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.node import routes
from moorage.node.config.schema import Config
from moorage.node.hostfiles import Node

HEADER = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
PARTS = ("10.88.0.0/18", "10.88.64.0/18", "10.88.128.0/18", "10.88.192.0/18")
# As the kernel writes addresses: with the last byte first.
FIRST, LAST, WITHIN, WHOLE, SITES, ELSEWHERE = (
    "0000580A 00C0FFFF",
    "00C0580A 00C0FFFF",
    "0145580A 00FFFFFF",
    "0000580A 0000FFFF",
    "0000000A 000000FF",
    "0001A8C0 00FFFFFF",
)


@pytest.mark.parametrize(
    ("taken", "free"),
    [
        ([], PARTS),
        ([ELSEWHERE], PARTS),
        ([FIRST], PARTS[1:]),
        ([WITHIN], (PARTS[0], *PARTS[2:])),
        ([FIRST, LAST], PARTS[1:3]),
        ([FIRST, LAST, WITHIN], ()),
        ([WHOLE], ()),
        ([SITES], ()),
    ],
)
def test_what_the_node_has_routes_to_is_left_to_the_site(
    tmp_path: Path, taken: list[str], free: tuple[str, ...]
) -> None:
    """Unless nothing is left: a job has its networks all the same."""
    lines = [f"eth0\t{one.split()[0]}\t00000000\t0001\t0\t0\t0\t{one.split()[1]}\t0\t0\t0\n" for one in taken]
    path = tmp_path / routes.IPV4.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(HEADER + "".join(lines))
    pool = Config().podman.pool
    assert routes.free_subnets(Node(tmp_path), pool) == free
    assert routes.choose_subnets(Node(tmp_path), pool) == (free or PARTS)


def test_a_small_pool_has_parts_for_more_than_one_network_each(tmp_path: Path) -> None:
    assert routes.choose_subnets(Node(tmp_path), "10.88.16.0/20")[0] == "10.88.16.0/22"
