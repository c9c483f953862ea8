"""A guest as of a site that allows the uplink `kernel`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .broken_node import configured
from .shell import Shell

FORWARDING = "net.ipv4.ip_forward"
# The guests ask the first of them for names, which for its own jobs is out of reach by this uplink.
RESOLVER = "10.77.0.2"
KERNEL = f"uplink: {{allowed: [pasta, slirp4netns, kernel], resolvers: [{RESOLVER}]}}"


@contextmanager
def a_router(shell: Shell) -> Iterator[None]:
    with sysctl(shell, FORWARDING, "1"), configured(shell, KERNEL):
        yield


@contextmanager
def sysctl(shell: Shell, name: str, value: str) -> Iterator[None]:
    before = shell.output("sysctl", "--values", name)
    shell.run(["sysctl", "--quiet", "--write", f"{name}={value}"])
    try:
        yield
    finally:
        shell.run(["sysctl", "--quiet", "--write", f"{name}={before}"])
