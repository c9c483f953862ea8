"""TCP from one network namespace to another: how much gets through, and how soon an answer comes.

Two processes of these lines get as much through a pair of links as iperf3 does, so that a node needs nothing for it.
"""

from __future__ import annotations

import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

# What the client's first byte asks of the server: to take, to give, or to answer.
TAKE, GIVE, ANSWER = b"t", b"g", b"a"
LIMIT: Final = 10.0
BLOCK: Final = 1 << 20
# In which the kernel finds out how much it may send at a time.
WARMING: Final = 0.2
RATE: Final = struct.Struct("!d")


@contextmanager
def serving(cpu: int) -> Iterator[int]:
    """A server in this thread's network namespace, at all its addresses; yields its port."""
    with socket.create_server(("", 0)) as ears:
        handed_on = ears.fileno()
        words = [sys.executable, "-IS", __file__, "serve", str(cpu), str(handed_on)]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[handed_on]) as server:
            try:
                yield int(ears.getsockname()[1])
            finally:
                server.kill()


def serve(handed_on: int) -> None:
    with socket.socket(fileno=handed_on) as ears:
        while True:
            connection, _ = ears.accept()
            # Whoever leaves in the middle has what he wanted.
            with connection, suppress(OSError):
                connection.settimeout(LIMIT)
                {TAKE: take, GIVE: give, ANSWER: answer}[connection.recv(1)](connection)


def take(connection: socket.socket) -> None:
    """Until the other side has got word of how much that was."""
    seconds = RATE.unpack(connection.recv(RATE.size, socket.MSG_WAITALL))[0]
    connection.sendall(RATE.pack(received(connection, seconds)))
    while connection.recv(BLOCK):
        pass


def give(connection: socket.socket) -> None:
    block = bytes(BLOCK)
    while True:
        connection.sendall(block)


def answer(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while word := connection.recv(1):
        connection.send(word)


def received(connection: socket.socket, seconds: float) -> float:
    """Gbit/s."""
    block = bytearray(BLOCK)
    start = time.monotonic() + WARMING
    while time.monotonic() < start:
        connection.recv_into(block)
    count = 0
    while (elapsed := time.monotonic() - start) < seconds:
        count += connection.recv_into(block)
    return count * 8 / elapsed / 1e9


def outward(connection: socket.socket, seconds: float) -> float:
    """As much as arrives, which is less than what was sent."""
    connection.sendall(TAKE + RATE.pack(seconds))
    block = bytes(BLOCK)
    while not select.select([connection], [], [], 0)[0]:
        connection.send(block)
    return float(RATE.unpack(connection.recv(RATE.size, socket.MSG_WAITALL))[0])


def inward(connection: socket.socket, seconds: float) -> float:
    connection.sendall(GIVE)
    return received(connection, seconds)


def round_trip(connection: socket.socket, seconds: float) -> float:
    """Microseconds."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(ANSWER)
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sent = time.perf_counter_ns()
        connection.send(b".")
        connection.recv(1)
        times.append(time.perf_counter_ns() - sent)
    return statistics.median(times) / 1e3


MEASURES: Final = {"outward": outward, "inward": inward, "round_trip": round_trip}


def main(what: str, cpu: str, *rest: str) -> None:
    os.sched_setaffinity(0, {int(cpu)})
    if what == "serve":
        serve(int(rest[0]))
    address, port, seconds = rest
    with socket.create_connection((address, int(port)), LIMIT) as connection:
        print(MEASURES[what](connection, float(seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
