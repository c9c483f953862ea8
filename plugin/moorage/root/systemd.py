"""systemd, as root's parts use it: readiness, descriptors that outlive a process, units.

Why not systemd-python: docs/decisions/0028-systemd-python.md.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from moorage.common.command import run


def notify(*lines: str, descriptors: Sequence[int] = ()) -> None:
    """Tell the service manager, if it started this process and asked for it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        # An address that begins with @ has no file.
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        socket.send_fds(sender, ["\n".join(lines).encode()], list(descriptors))


def keep(descriptor: int, name: str) -> None:
    """Have the service manager hold this descriptor until the unit is stopped, and give it to each new start."""
    notify("FDSTORE=1", f"FDNAME={name}", descriptors=[descriptor])


def kept() -> dict[str, int]:
    """The descriptors that an earlier process of this unit had kept, by name."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return {}
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    numbers = range(3, 3 + int(os.environ.get("LISTEN_FDS", "0")))
    for number in numbers:
        os.set_inheritable(number, False)
    return dict(zip(names, numbers, strict=False))


def warden_unit(job: int) -> str:
    return f"moorage-warden@{job}.service"


def stop(unit: str, limit: float) -> None:
    """Stop it and wait for its end; a unit that nobody has started is stopped already."""
    run(["systemctl", "stop", unit], limit=limit)


def start_aside(unit: str, limit: float) -> None:
    """Start it, without waiting for its end."""
    run(["systemctl", "start", "--no-block", unit], limit=limit)
