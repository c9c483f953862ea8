"""Links of this network namespace: found by name, made, plugged into other namespaces, removed."""

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
# In a VXLAN's table: where to send frames for an address that the table does not have.
UNKNOWN: Final = "00:00:00:00:00:00"
# The table of routes to other hosts, and that of routes to this host.
MAIN_TABLE, OWN_TABLE = 254, 255
# All groups of bridges but 01:80:c2:00:00:01, which no bridge ever passes on.
ALL_GROUPS: Final = 0xFFFD
# The kernel's settings for this network namespace.
SETTINGS: Final = Path("/proc/sys/net")
HARDENED: Final = {"ipv4/conf/{}/rp_filter": "1", "ipv6/conf/{}/disable_ipv6": "1"}
# The type of a route to other hosts: not to this one, and no broadcast.
TO_ONE_HOST: Final = 1
UNREACHABLE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL})


class Links:
    def __init__(self, ip: IPRoute) -> None:
        self.ip = ip

    def index(self, name: str) -> int | None:
        """The index of the link; None only if there is none. All other errors are raised: a removal relies on this."""
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
        """Make a link that is down, and on which the kernel sends nothing by itself; its index."""
        self.ip.link("add", ifname=name, kind=kind, **details)
        index = self.index(name)
        if index is None:
            raise MoorageError(f"the link {name} is gone as soon as it was made")
        silent = {"attrs": [("AF_INET6", {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", NO_ADDRESS)]})]}
        try:
            self.ip.link("set", index=index, IFLA_AF_SPEC=silent)
        except NetlinkError as error:
            # Without IPv6 the kernel has nothing to send.
            if error.code != errno.EAFNOSUPPORT:
                raise
        return index

    def plug(self, name: str, mtu: int, namespace: int, theirs: str) -> int:
        """Make a link whose other end is in another network namespace, where its name may be taken; its index."""
        peer = {"ifname": theirs, "net_ns_fd": namespace, "mtu": mtu}
        try:
            return self.make("veth", name, mtu=mtu, peer=peer)
        except NetlinkError as error:
            if error.code != errno.EEXIST:
                raise
            raise MoorageError(f"there is a link {theirs} in the job's network already") from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove the links with these names, as far as they exist."""
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
        """Let the bridge above pass on frames for the groups of bridges (01:80:c2:00:00:0x) like any others.

        Otherwise it gives them to this node's own stack, also if it is down (seen on 6.18).
        """
        self.ip.brport("set", index=index, group_fwd_mask=ALL_GROUPS)

    def give_address(self, index: int, address: IPv4Interface) -> None:
        self.ip.addr("add", index=index, address=str(address.ip), prefixlen=address.network.prefixlen)

    def forward(self, index: int, addresses: Mapping[str, Iterable[IPv4Address]]) -> None:
        """Let a VXLAN send frames for each address to these hosts; UNKNOWN stands for all other addresses."""
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
        """The networks to which this host has routes in any table, without default routes."""
        routes = self.ip.get_routes(family=socket.AF_INET)
        elsewhere = [route for route in routes if route["dst_len"] and route.get_attr("RTA_TABLE") != OWN_TABLE]
        return [IPv4Network(f"{route.get_attr('RTA_DST')}/{route['dst_len']}") for route in elsewhere]

    def default_link(self) -> int | None:
        """The link of a default route, if there is one."""
        routes = self.ip.get_routes(family=socket.AF_INET, table=MAIN_TABLE)
        ways = [index for route in routes if not route["dst_len"] for index in _links_of(route) if index]
        return int(ways[0]) if ways else None

    def route(self, target: IPv4Address) -> tuple[int, IPv4Address] | None:
        """The link by which this host sends to the target, and its own address there."""
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
    """The links of a route. A route with several next hops has no link of its own."""
    return [route.get_attr("RTA_OIF"), *(way["oif"] for way in route.get_attr("RTA_MULTIPATH") or ())]


def harden(name: str) -> None:
    """Accept only senders, also in ARP, to which this link leads, and take nothing of IPv6 from it.

    All links share the node's table of neighbours, and a sender that poses as many neighbours would fill it. A sender
    that announces itself as an IPv6 router would become the node's router. These settings do not depend on rules of the
    packet filter, which somebody may flush.
    """
    for setting, value in HARDENED.items():
        # A kernel without IPv6 has no such file.
        with suppress(FileNotFoundError):
            (SETTINGS / setting.format(name)).write_text(value)


@contextmanager
def links() -> Iterator[Links]:
    with IPRoute() as ip:
        yield Links(ip)
