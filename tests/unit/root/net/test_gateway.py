"""The network between a job and its node: out of the site's pool, beside what the node has routes to."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from moorage.common.errors import Taken
from moorage.root.net.gateway import free_network

POOL = IPv4Network("100.96.0.0/16")


def chosen(job: int, *taken: str, pool: IPv4Network = POOL) -> str:
    return str(free_network(pool, job, [IPv4Network(text) for text in taken]))


@pytest.mark.parametrize(
    ("job", "taken", "network"),
    [
        (0, (), "100.96.0.0/30"),
        (1, (), "100.96.0.4/30"),
        (17, (), "100.96.0.68/30"),
        (16383, (), "100.96.255.252/30"),
        (16384, (), "100.96.0.0/30"),
        (1, ("100.96.0.4/30",), "100.96.0.8/30"),
        (1, ("100.96.0.6/32",), "100.96.0.8/30"),
        (1, ("100.96.0.0/28",), "100.96.0.16/30"),
        (16383, ("100.96.255.252/30",), "100.96.0.0/30"),
        (1, ("192.0.2.0/24", "10.0.0.0/8"), "100.96.0.4/30"),
    ],
)
def test_which_one(job: int, taken: tuple[str, ...], network: str) -> None:
    assert chosen(job, *taken) == network


@pytest.mark.parametrize("taken", ["100.96.0.0/16", "100.64.0.0/10", "100.96.0.0/19"])
def test_none_is_free(taken: str) -> None:
    with pytest.raises(Taken, match=r"no network is free for job 1 in the pool 100\.96\.0\.0/16"):
        chosen(1, taken)


def test_a_small_pool() -> None:
    assert chosen(5, pool=IPv4Network("10.9.8.0/30")) == "10.9.8.0/30"
    with pytest.raises(Taken, match="no network is free"):
        chosen(5, pool=IPv4Network("10.9.8.0/31"))
