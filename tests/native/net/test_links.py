"""Links by their names."""

from __future__ import annotations

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from moorage.command import run
from moorage.net.links import links
from support.hosts import CABLE, Host
from support.namespaces import inside


def test_one_that_cannot_be_asked_for_is_not_one_that_is_not_there(hosts: list[Host]) -> None:
    with inside(hosts[0].namespace), links() as here:
        assert here.index(CABLE) == hosts[0].index(CABLE)
        assert here.index("moor17v") is None
        with pytest.raises(NetlinkError):
            here.index("longer than names of links are")


@pytest.mark.parametrize("way", [["via", "192.0.2.2"], ["nexthop", "via", "192.0.2.2", "nexthop", "via", "192.0.2.9"]])
def test_the_way_out_may_be_several(hosts: list[Host], way: list[str]) -> None:
    with inside(hosts[0].namespace), links() as here:
        assert here.way_out() is None
        run(["ip", "route", "add", "default", *way])
        assert here.way_out() == hosts[0].index(CABLE)
