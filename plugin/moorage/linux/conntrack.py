"""The node's table of connections: one for all its networks, and entries of jobs outlive them there."""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Address

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple, NFCTSocket


def forget(address: IPv4Address) -> None:
    """All that this address has begun: what is sent in answer is nobody's any more."""
    with NFCTSocket() as table:
        for begun in begun_by(address):
            try:
                table.entry("del", tuple_orig=begun)
            except NetlinkError as error:
                # It has ended meanwhile.
                if error.code != errno.ENOENT:
                    raise


def begun_by(address: IPv4Address) -> list[NFCTAttrTuple]:
    with NFCTSocket() as table:
        entries = list(table.dump(tuple_orig=NFCTAttrTuple(saddr=str(address))))
    found = [NFCTAttrTuple.from_netlink(socket.AF_INET, entry.get_attr("CTA_TUPLE_ORIG")) for entry in entries]
    # Kernels before 5.8 tell of all.
    return [begun for begun in found if begun.saddr == str(address)]
