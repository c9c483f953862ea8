"""What a node has to be before it can be a router for jobs: files of the kernel's, which are quick to read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from moorage.common.errors import UserError

FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
NODES_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
# The larger of this and a link's own counts; and 2, with which any sender is believed, is larger than 1.
OF_ALL_LINKS: Final = Path("/proc/sys/net/ipv4/conf/all/rp_filter")
# Above those that the kernel gives to whoever wants any. Who has a port of a service for a source port, and sends to
# another host, gets what that host sends to the service.
JOBS_PORTS: Final = (61000, 65535)


def check() -> None:
    """What the site has to settle for all of the node before it can be a router for jobs."""
    if FORWARDING.read_text().strip() != "1":
        raise UserError(
            "this node forwards no packets, which the uplink kernel needs",
            "set net.ipv4.ip_forward=1, or take kernel out of uplink.allowed",
        )
    if OF_ALL_LINKS.read_text().strip() == "2":
        raise UserError(
            "net.ipv4.conf.all.rp_filter=2 has this node believe all senders, whatever the value of a job's link is",
            "set it to 0 or 1, or take kernel out of uplink.allowed",
        )
    low, high = NODES_PORTS.read_text().split()
    if int(high) >= JOBS_PORTS[0]:
        raise UserError(
            f"this node's own programs use ports {low}-{high}, and the uplink kernel {JOBS_PORTS[0]}-{JOBS_PORTS[1]}",
            f"have net.{NODES_PORTS.parent.name}.{NODES_PORTS.name} end below, or take kernel out of uplink.allowed",
        )
