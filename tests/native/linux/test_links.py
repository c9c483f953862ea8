"""Links by their names."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from moorage.common.command import run
from moorage.linux import links as module
from moorage.linux.links import harden, links
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
        assert here.default_link() is None
        run(["ip", "route", "add", "default", *way])
        assert here.default_link() == hosts[0].index(CABLE)


@pytest.mark.parametrize("table", ["main", "52", "1000"])
def test_networks_are_those_of_all_tables(hosts: list[Host], table: str) -> None:
    """As VPNs have a table of their own; those to the host itself are no networks of others."""
    with inside(hosts[0].namespace), links() as here:
        before = here.networks()
        assert list(map(str, before)) == ["192.0.2.0/24"]
        run(["ip", "route", "add", "100.64.0.0/10", "via", "192.0.2.2", "table", table])
        assert {*map(str, here.networks())} == {"192.0.2.0/24", "100.64.0.0/10"}


@pytest.mark.parametrize(("code", "made"), [(errno.EAFNOSUPPORT, True), (errno.EINVAL, False)])
def test_a_kernel_without_ipv6_makes_links_too(
    hosts: list[Host], monkeypatch: pytest.MonkeyPatch, code: int, made: bool
) -> None:
    """Booted with ipv6.disable=1 it knows no such thing about a link; that is the one complaint to pass over."""
    with inside(hosts[0].namespace), links() as here:
        ask = here.ip.link

        def link(command: str, **details: Any) -> Any:  # noqa: ANN401
            if "IFLA_AF_SPEC" in details:
                raise NetlinkError(code)
            return ask(command, **details)

        monkeypatch.setattr(here.ip, "link", link)
        if made:
            assert here.make("bridge", "moor17s") == here.index("moor17s")
        else:
            with pytest.raises(NetlinkError):
                here.make("bridge", "moor17s")


def test_where_there_is_no_ipv6_a_link_is_wary_all_the_same(
    hosts: list[Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has no settings for it then."""
    settings = tmp_path / "ipv4/conf" / CABLE
    settings.mkdir(parents=True)
    (settings / "rp_filter").write_text("0")
    monkeypatch.setattr(module, "SETTINGS", tmp_path)
    harden(CABLE)
    assert (settings / "rp_filter").read_text() == "1"
    assert not (tmp_path / "ipv6").exists()
