"""Open ports of a guest, and those that answer callers on other nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from ..guest.shell import Shell

PROGRAM = Path(__file__).resolve().parents[1] / "in_guest" / "connect.py"
SS = ("ss", "--no-header", "--listening", "--tcp", "--udp", "--numeric", "--processes")
_PROGRAM = re.compile(r'\("([^"]+)",pid=')
# What ss writes for a socket of both families.
EVERY = "*"


@dataclass(frozen=True)
class Open:
    """`program` is the program that listens; empty if the kernel itself does."""

    kind: str
    address: IPv4Address | IPv6Address
    port: int
    program: str

    @property
    def local(self) -> bool:
        """Whether this guest's own processes alone can reach it."""
        mapped = self.address.ipv4_mapped if isinstance(self.address, IPv6Address) else None
        return (mapped or self.address).is_loopback


def opened(shell: Shell) -> set[Open]:
    return parse(shell.output(*SS))


def parse(said: str) -> set[Open]:
    return {_open(line) for line in said.splitlines()}


def _open(line: str) -> Open:
    kind, _, _, _, local, _, *more = line.split(maxsplit=6)
    address, _, port = local.rpartition(":")
    # As in 127.0.0.53%lo and [fe80::1]%eth0.
    plain = address.partition("%")[0].strip("[]")
    program = _PROGRAM.search(" ".join(more))
    return Open(kind, ip_address("::" if plain == EVERY else plain), int(port), program[1] if program else "")


def answering(shell: Shell, user: str, host: str, ports: Iterable[int]) -> list[int]:
    """The ports of a host that accept a connection of this user from here."""
    said = shell.output("python3", "-c", PROGRAM.read_text(), host, *map(str, sorted({*ports})), user=user)
    found: list[int] = json.loads(said)
    return found
