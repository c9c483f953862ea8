"""Links of this network namespace: found by name, made, handed out, removed."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any, Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from moorage.common.errors import MoorageError

NO_ADDRESS: Final = 1
NOBODY: Final = "00:00:00:00:00:00"
# Of all routes to others, and of those to this host itself.
MAIN_TABLE, OWN_TABLE = 254, 255
# But for 01:80:c2:00:00:01, which no bridge ever passes on.
ALL_GROUPS: Final = 0xFFFD
# Of this network namespace.
SETTINGS: Final = Path("/proc/sys/net")
WARY: Final = {"ipv4/conf/{}/rp_filter": "1", "ipv6/conf/{}/disable_ipv6": "1"}
# Not to this host itself, nor to all of a network.
TO_ONE_HOST: Final = 1
UNREACHABLE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL})


class Links:
    def __init__(self, ip: IPRoute) -> None:
        self.ip = ip

    def index(self, name: str) -> int | None:
        """None if there is none; whatever else goes wrong must not look like that to who removes it."""
        try:
            (link,) = self.ip.link("get", ifname=name)
        except NetlinkError as error:
            if error.code != errno.ENODEV:
                raise
            return None
        return int(link["index"])

    def by_index(self) -> dict[int, str]:
        return {link["index"]: link.get_attr("IFLA_IFNAME") for link in self.ip.get_links()}

    def mtu(self, index: int) -> int:
        (link,) = self.ip.link("get", index=index)
        return int(link.get_attr("IFLA_MTU"))

    def make(self, kind: str, name: str, **details: Any) -> int:  # noqa: ANN401
        """A new link, which is down, and on which the kernel says nothing of its own accord."""
        self.ip.link("add", ifname=name, kind=kind, **details)
        index = self.index(name)
        if index is None:
            raise MoorageError(f"the link {name} is gone as soon as it was made")
        silent = {"attrs": [("AF_INET6", {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", NO_ADDRESS)]})]}
        try:
            self.ip.link("set", index=index, IFLA_AF_SPEC=silent)
        except NetlinkError as error:
            # Without IPv6 there is nothing that could be said.
            if error.code != errno.EAFNOSUPPORT:
                raise
        return index

    def plug(self, name: str, mtu: int, namespace: int, theirs: str) -> int:
        """A new link, the other end of which is in another network namespace, by a name that may be taken there."""
        peer = {"ifname": theirs, "net_ns_fd": namespace, "mtu": mtu}
        try:
            return self.make("veth", name, mtu=mtu, peer=peer)
        except NetlinkError as error:
            if error.code != errno.EEXIST:
                raise
            raise MoorageError(f"there is a link {theirs} in the job's network already") from error

    def remove(self, names: Iterable[str]) -> None:
        """It does not matter whether they are there."""
        for name in names:
            if index := self.index(name):
                try:
                    self.ip.link("del", index=index)
                except NetlinkError as error:
                    if error.code != errno.ENODEV:
                        raise

    def set_up(self, index: int) -> None:
        self.ip.link("set", index=index, state="up")

    def set_down(self, index: int) -> None:
        self.ip.link("set", index=index, state="down")

    def put_below(self, index: int, master: int) -> None:
        self.ip.link("set", index=index, master=master)

    def swallow_groups(self, index: int) -> None:
        """Have the bridge above treat frames for the groups of bridges (01:80:c2:00:00:0x) as any others.

        It hands them to this node's own stack else, also if it is down (seen on 6.18).
        """
        self.ip.brport("set", index=index, group_fwd_mask=ALL_GROUPS)

    def give_address(self, index: int, address: IPv4Interface) -> None:
        self.ip.addr("add", index=index, address=str(address.ip), prefixlen=address.network.prefixlen)

    def forward(self, index: int, addresses: Mapping[str, Iterable[IPv4Address]]) -> None:
        """Have a VXLAN send what is for each address to these hosts; NOBODY is for whom no address is known."""
        for address, hosts in addresses.items():
            for host in hosts:
                self.ip.fdb("append", ifindex=index, lladdr=address, dst=str(host))

    def addresses(self) -> list[tuple[int, IPv4Interface]]:
        """Each address of this host, with the index of its link."""
        return [
            (found["index"], IPv4Interface(f"{found.get_attr('IFA_LOCAL')}/{found['prefixlen']}"))
            for found in self.ip.get_addr(family=socket.AF_INET)
        ]

    def networks(self) -> list[IPv4Network]:
        """The networks that this host has routes to by any rule of its own, beside the way out for all others."""
        routes = self.ip.get_routes(family=socket.AF_INET)
        elsewhere = [route for route in routes if route["dst_len"] and route.get_attr("RTA_TABLE") != OWN_TABLE]
        return [IPv4Network(f"{route.get_attr('RTA_DST')}/{route['dst_len']}") for route in elsewhere]

    def way_out(self) -> int | None:
        """The link by which this host reaches all that it has no other route to; of several one."""
        routes = self.ip.get_routes(family=socket.AF_INET, table=MAIN_TABLE)
        ways = [index for route in routes if not route["dst_len"] for index in _links_of(route) if index]
        return int(ways[0]) if ways else None

    def route(self, target: IPv4Address) -> tuple[int, IPv4Address] | None:
        """By which link, and with which address of its own, this host sends to the target."""
        try:
            (route,) = self.ip.route("get", dst=str(target))
        except NetlinkError as error:
            if error.code in UNREACHABLE:
                return None
            raise
        if route["type"] != TO_ONE_HOST:
            return None
        return int(route.get_attr("RTA_OIF")), IPv4Address(route.get_attr("RTA_PREFSRC"))


def _links_of(route: Any) -> list[int]:  # noqa: ANN401
    """Where a route has several ways, it has no link of its own."""
    return [route.get_attr("RTA_OIF"), *(way["oif"] for way in route.get_attr("RTA_MULTIPATH") or ())]


def be_wary(name: str) -> None:
    """Believe a sender's address, also in ARP, only where this link leads to it; and take nothing of IPv6 from there.

    The node's table of neighbours is one for all, and whoever may be any number of them fills it. Who may announce
    himself as a router becomes the node's own. Neither depends on rules that somebody may flush.
    """
    for setting, value in WARY.items():
        # There may be no IPv6.
        with suppress(FileNotFoundError):
            (SETTINGS / setting.format(name)).write_text(value)


@contextmanager
def links() -> Iterator[Links]:
    with IPRoute() as ip:
        yield Links(ip)
