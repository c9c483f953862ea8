"""The node's table of connections, which all its networks share. Entries outlive the job that opened them."""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Address

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple, NFCTSocket


def remove(address: IPv4Address) -> None:
    """Remove the connections that this address has opened, so that late answers reach nobody."""
    with NFCTSocket() as table:
        for tuple_ in opened_by(address):
            try:
                table.entry("del", tuple_orig=tuple_)
            except NetlinkError as error:
                # The connection has ended meanwhile.
                if error.code != errno.ENOENT:
                    raise


def opened_by(address: IPv4Address) -> list[NFCTAttrTuple]:
    with NFCTSocket() as table:
        entries = list(table.dump(tuple_orig=NFCTAttrTuple(saddr=str(address))))
    found = [NFCTAttrTuple.from_netlink(socket.AF_INET, entry.get_attr("CTA_TUPLE_ORIG")) for entry in entries]
    # Kernels before 5.8 ignore the filter and list all.
    return [tuple_ for tuple_ in found if tuple_.saddr == str(address)]
