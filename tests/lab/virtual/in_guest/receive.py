"""Receive messages at a port, by UDP or TCP: receive.py ADDRESS PORT LIMIT LAST_WORD

Prints the hardware address of the first card first, and then a line for each message, with its origin,
until that is the last word or LIMIT seconds have passed. Runs in a guest as root, in any network namespace.
"""

import fcntl
import json
import selectors
import socket
import struct
import sys
import time

CARD = b"eth0"
ASKS_FOR_HARDWARE_ADDRESS = 0x8927
LONGEST = 1 << 16

address, port, limit, last = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4].encode()


def hardware_address(asker: socket.socket) -> str:
    answer = fcntl.ioctl(asker, ASKS_FOR_HARDWARE_ADDRESS, struct.pack("256s", CARD))
    return answer[18:24].hex(":")


def hear(source: socket.socket) -> tuple[str, bytes, tuple[str, int]]:
    if source.type == socket.SOCK_DGRAM:
        return "udp", *source.recvfrom(LONGEST)
    connection, caller = source.accept()
    with connection:
        connection.settimeout(limit)
        return "tcp", connection.recv(LONGEST), caller


with (
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connections,
    selectors.DefaultSelector() as selector,
):
    for one in (datagrams, connections):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((address, port))
        selector.register(one, selectors.EVENT_READ)
    connections.listen()
    print(json.dumps(hardware_address(datagrams)), flush=True)
    end, said = time.monotonic() + limit, b""
    while said != last and (left := end - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            kind, said, source = hear(key.fileobj)  # type: ignore[arg-type]
            print(json.dumps([kind, said.decode(errors="replace"), *source[:2]]), flush=True)
