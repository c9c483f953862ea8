"""The placeholder: the task beside an agent. It gives its cgroup to the agent, and Slurm counts what runs in there."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Mapping

from moorage.common import warden_protocol
from moorage.common.description import Mooring
from moorage.common.events import FROM_OUTSIDE, Signals
from moorage.common.podman import Places

SOCKET = "agent.sock"


def main(environ: Mapping[str, str]) -> int:
    """Stay until the agent or the input of the step has ended."""
    with Signals(FROM_OUTSIDE), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        mooring = Mooring.of_this_job(environ)
        # The warden answers once the agent has asked for the cgroup; by then the agent listens.
        warden_protocol.call(mooring.warden, warden_protocol.Lend(), mooring.waits.agents)
        agent.connect(os.fspath(mooring.places.user / SOCKET))
        wait_for_end(sys.stdin.fileno(), agent.fileno())
    return 0


def wait_for_end(*descriptors: int) -> None:
    """Wait until one of them is at its end."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    while all(_has_more(descriptor) for descriptor, _ in poll.poll()):
        pass


def listening(places: Places) -> socket.socket:
    """The agent's socket. It accepts no connection, but a pending connection ends when the agent ends in any way."""
    place = places.user / SOCKET
    place.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(place))
    listener.listen()
    return listener


def _has_more(descriptor: int) -> bool:
    try:
        return bool(os.read(descriptor, 1 << 16))
    except ConnectionError:
        return False
