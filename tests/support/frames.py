"""Frames and packets put together by hand, as an attacker would."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address

ALL = bytes.fromhex("ffffffffffff")
SOMEBODY = bytes.fromhex("02deadbeef01")
IPV4 = 0x0800
ARP = 0x0806


def vxlan(vni: int, frame: bytes) -> bytes:
    """What comes in a UDP packet to a VXLAN."""
    return bytes([8, 0, 0, 0]) + vni.to_bytes(3, "big") + b"\0" + frame


def ethernet(kind: int, content: bytes, to: bytes = ALL) -> bytes:
    return to + SOMEBODY + kind.to_bytes(2, "big") + content


def udp(source: str, target: str, port: int, content: bytes, source_port: int = 4000) -> bytes:
    """An IPv4 packet; a UDP packet may do without its checksum."""
    datagram = struct.pack("!HHHH", source_port, port, 8 + len(content), 0) + content
    addresses = IPv4Address(source).packed + IPv4Address(target).packed
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), 1, 0, 64, socket.IPPROTO_UDP, 0) + addresses
    return header[:10] + _checksum(header).to_bytes(2, "big") + header[12:] + datagram


def asks_for(address: str, source: str, to: bytes = ALL) -> bytes:
    """Who has this address?"""
    question = struct.pack("!HHBBH", 1, IPV4, 6, 4, 1) + SOMEBODY + IPv4Address(source).packed
    return ethernet(ARP, question + bytes(6) + IPv4Address(address).packed, to)


def answers_for(frame: bytes, address: str) -> bool:
    return frame[12:14] == ARP.to_bytes(2, "big") and frame[20:22] == b"\0\2" and frame[28:32] == _packed(address)


def checked(message: bytes) -> bytes:
    """An ICMP message with its checksum."""
    return message[:2] + _checksum(message).to_bytes(2, "big") + message[4:]


def _packed(address: str) -> bytes:
    return IPv4Address(address).packed


def _checksum(header: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
