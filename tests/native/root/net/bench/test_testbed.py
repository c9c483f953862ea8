"""What comes in by a link is done by the processor that it was given."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from moorage.root.net.bench import testbed
from support.hosts import CABLE, arrives, connected
from support.namespaces import inside

COUNT = 50
# In a line of each processor: what others have handed to it, and which one it is.
HANDED_ON, NUMBER = 9, 12


def test_another_one_takes_over() -> None:
    near, far = testbed.pair()
    with connected(2) as hosts:
        with inside(hosts[1].namespace):
            testbed.receives(far, CABLE)
        sender, receiver = (host.udp(str(host.address), 5000) for host in hosts)
        with sender, receiver:
            before = handed_on(far)
            pin_and_send(sender, receiver, near)
    assert handed_on(far) - before >= COUNT or near == far


def pin_and_send(sender: socket.socket, receiver: socket.socket, worker: int) -> None:
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {worker})
    try:
        assert all(arrives(sender, receiver) for _ in range(COUNT))
    finally:
        os.sched_setaffinity(0, ours)


def handed_on(worker: int) -> int:
    rows = [
        [int(word, 16) for word in line.split()] for line in Path("/proc/net/softnet_stat").read_text().splitlines()
    ]
    return next(row[HANDED_ON] for row in rows if row[NUMBER] == worker)
