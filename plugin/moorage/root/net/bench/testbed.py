"""A test network of two hosts: network namespaces that end with this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Final

from moorage.common.command import run
from moorage.common.errors import MoorageError
from moorage.linux.links import Links, links
from moorage.linux.netns import create, inside

CABLE: Final = "eth0"
NODE: Final = IPv4Interface("192.0.2.1/24")
OUTSIDE: Final = IPv4Interface("192.0.2.2/24")
# The settings that the uplink `kernel` needs on a node. A new network namespace inherits only some of them.
ROUTER: Final = {
    "ipv4/ip_forward": "1",
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/ip_local_port_range": "32768 60999",
}
READY: Final = 10.0
# /sys shows the links of the network namespace in which it was mounted.
_HAND_OVER: Final = """
mount -t sysfs sysfs /sys
for queue in "/sys/class/net/$1/queues"/rx-*; do echo "$2" >"$queue/rps_cpus"; done
"""
_GROUP: Final = 32


@dataclass(frozen=True)
class Stage:
    """A node whose default route leads to one other host."""

    node: int
    outside: int


@contextmanager
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        node, outside = (stack.enter_context(host()) for _ in range(2))
        with inside(node), links() as here:
            peer = {"ifname": CABLE, "net_ns_fd": outside}
            near, far = pair()
            _connect(here, here.make("veth", CABLE, peer=peer), NODE, near)
            with inside(outside), links() as there:
                _connect(there, there.index(CABLE) or 0, OUTSIDE, far)
            here.ip.route("add", dst="default", gateway=str(OUTSIDE.ip))
            for name, value in ROUTER.items():
                (Path("/proc/sys/net") / name).write_text(value)
        yield Stage(node, outside)


def _connect(links: Links, index: int, address: IPv4Interface, worker: int) -> None:
    links.give_address(index, address)
    links.set_up(index)
    receives(worker, CABLE)


@contextmanager
def host() -> Iterator[int]:
    """A new network namespace, with nothing but its loopback link."""
    namespace = create()
    try:
        with inside(namespace), links() as here:
            here.set_up(1)
        yield namespace
    finally:
        os.close(namespace)


def await_default_route(namespace: int, given_up: Callable[[], bool]) -> None:
    """Wait until another process has made a default route in the network namespace."""
    end = time.monotonic() + READY
    with inside(namespace), links() as here:
        while here.default_link() is None:
            if given_up() or time.monotonic() > end:
                raise MoorageError(f"made no network within {READY:g} s")
            time.sleep(0.02)


def pair() -> tuple[int, int]:
    """The processors for the asking and the answering host. If there is only one, they share it."""
    here = sorted(os.sched_getaffinity(0))
    return here[0], here[1 % len(here)]


def receives(processor: int, link: str) -> None:
    """Let this processor handle incoming packets of a link in the present network namespace."""
    run(["unshare", "--mount", "sh", "-euc", _HAND_OVER, "sh", link, mask(processor)])


def mask(processor: int) -> str:
    """A set of one processor as the kernel reads it: hexadecimal, in groups of 32, the highest first."""
    groups, place = divmod(processor, _GROUP)
    return ",".join([f"{1 << place:08x}", *["00000000"] * groups])
