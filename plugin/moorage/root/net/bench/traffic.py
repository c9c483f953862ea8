"""Measures TCP from one network namespace to another: throughput, and the time of a round trip.

Two processes of this program reach the throughput of iperf3 over a pair of links, so a node needs no other program.
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

# The client's first byte tells the server what to do: take data, give data, or answer each byte.
TAKE, GIVE, ANSWER = b"t", b"g", b"a"
LIMIT: Final = 10.0
BLOCK: Final = 1 << 20
# Seconds in which the kernel finds out how much it can send at a time. They are not measured.
WARMING: Final = 0.2
RATE: Final = struct.Struct("!d")


@contextmanager
def serving(cpu: int) -> Iterator[int]:
    """Run a server at all addresses of this thread's network namespace; yields its port."""
    with socket.create_server(("", 0)) as listener:
        descriptor = listener.fileno()
        words = [sys.executable, "-IS", __file__, "serve", str(cpu), str(descriptor)]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[descriptor]) as server:
            try:
                yield int(listener.getsockname()[1])
            finally:
                server.kill()


def serve(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as listener:
        while True:
            connection, _ = listener.accept()
            # The client may close at any time.
            with connection, suppress(OSError):
                connection.settimeout(LIMIT)
                {TAKE: take, GIVE: give, ANSWER: answer}[connection.recv(1)](connection)


def take(connection: socket.socket) -> None:
    """Receive data for a while, tell the client the throughput, and wait until the client closes."""
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
    """The throughput of received data in Gbit/s."""
    block = bytearray(BLOCK)
    start = time.monotonic() + WARMING
    while time.monotonic() < start:
        connection.recv_into(block)
    count = 0
    while (elapsed := time.monotonic() - start) < seconds:
        count += connection.recv_into(block)
    return count * 8 / elapsed / 1e9


def outward(connection: socket.socket, seconds: float) -> float:
    """The throughput of data that arrives at the server in Gbit/s: less than what was sent."""
    connection.sendall(TAKE + RATE.pack(seconds))
    block = bytes(BLOCK)
    while not select.select([connection], [], [], 0)[0]:
        connection.send(block)
    return float(RATE.unpack(connection.recv(RATE.size, socket.MSG_WAITALL))[0])


def inward(connection: socket.socket, seconds: float) -> float:
    """The throughput of data from the server in Gbit/s."""
    connection.sendall(GIVE)
    return received(connection, seconds)


def round_trip(connection: socket.socket, seconds: float) -> float:
    """The median time of a round trip in microseconds."""
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
