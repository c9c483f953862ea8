"""The task beside an agent, which lends it its cgroup: Slurm counts what is in there as this task's."""

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

DOOR = "agent.sock"


def main(environ: Mapping[str, str]) -> int:
    """Stay until the agent has ended, or the input of the step."""
    with Signals(FROM_OUTSIDE), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        mooring = Mooring.of_this_job(environ)
        # Answered once the agent has asked for what is lent, and so has opened its door.
        warden_protocol.call(mooring.warden, warden_protocol.Lend(), mooring.waits.agents)
        agent.connect(os.fspath(mooring.places.user / DOOR))
        wait_for_end(sys.stdin.fileno(), agent.fileno())
    return 0


def wait_for_end(*descriptors: int) -> None:
    """Until one of them is at its end."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    while all(_heard(descriptor) for descriptor, _ in poll.poll()):
        pass


def door(places: Places) -> socket.socket:
    """The agent's: nobody is let in, but who waits before it sees it close when the agent ends, however it does."""
    place = places.user / DOOR
    place.unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(os.fspath(place))
    door.listen()
    return door


def _heard(descriptor: int) -> bool:
    try:
        return bool(os.read(descriptor, 1 << 16))
    except ConnectionError:
        return False
