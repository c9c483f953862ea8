"""A job's fabric as the root of a guest sees it; messages into it, and those that arrive."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from moorage.common.errors import MoorageError
from support.frames import IPV4, ethernet, udp, vxlan

from ..guest.shell import Shell

PROGRAMS = Path(__file__).resolve().parents[1] / "in_guest"
LIMIT = 180.0
PORT = 5000
VNIS = 1 << 24
# Nobody's.
SOURCE = "10.89.0.99"
LAST_WORD = "that is all"


@dataclass(frozen=True)
class Fabric:
    """Its number, and the port to which its frames go between the nodes."""

    vni: int
    port: int

    def forged(self, content: str, address: str, hardware_address: str) -> bytes:
        """A frame in a packet that brings a datagram to a container's port, if it is let in."""
        packet = udp(SOURCE, address, PORT, content.encode())
        return vxlan(self.vni, ethernet(IPV4, packet, bytes.fromhex(hardware_address.replace(":", ""))))


def fabric(shell: Shell, job: str) -> Fabric:
    return parse(shell.output("ip", "-json", "-details", "link", "show", "type", "vxlan"), job)


def parse(said: str, job: str) -> Fabric:
    """The job's fabric, out of the output of `ip`."""
    for link in json.loads(said):
        # An empty one stands for a link of another kind.
        settings = link.get("linkinfo", {}).get("info_data", {})
        if settings.get("id") == int(job) % VNIS:
            return Fabric(settings["id"], settings["port"])
    raise MoorageError(f"there is no VXLAN of job {job}")


@dataclass(frozen=True)
class Message:
    """Something that is sent."""

    host: str
    port: int
    content: bytes
    source: int = 0
    kind: str = "udp"
    times: int = 1
    pause: float = 0.0


def send(shell: Shell, messages: Sequence[Message], *, user: str = "root", network_of: int = 0) -> list[str | None]:
    """The result of each: None, or the name of an error. Sent from the network of a process, if one is named."""
    enter = ["nsenter", f"--target={network_of}", "--net"] if network_of else []
    argv = [*enter, "python3", "-c", (PROGRAMS / "send.py").read_text()]
    wanted = json.dumps([asdict(shot) | {"content": shot.content.hex()} for shot in messages]).encode()
    found: list[str | None] = json.loads(shell.run(argv, user=user, input=wanted).stdout)
    return found


@dataclass(frozen=True)
class Received:
    kind: str
    text: str
    host: str
    port: int


@dataclass(frozen=True)
class Receiver:
    """It receives until somebody sends the last word."""

    hardware_address: str
    _lines: Iterator[str]

    def received(self) -> list[Received]:
        """All up to the last word, which is left out."""
        found = [Received(*json.loads(line)) for line in self._lines]
        if not found or found[-1].text != LAST_WORD:
            raise MoorageError(f"the last word was not received, but {found}")
        return [one for one in found if one.text != LAST_WORD]


@contextmanager
def receiver(shell: Shell, address: str = "0.0.0.0", port: int = PORT, *, network_of: int = 0) -> Iterator[Receiver]:  # noqa: S104
    """At a port of this guest, or of the network that a process is in."""
    enter = ["nsenter", f"--target={network_of}", "--net"] if network_of else []
    words = [address, str(port), f"{LIMIT:.0f}", LAST_WORD]
    argv = [*enter, "python3", "-u", "-c", (PROGRAMS / "receive.py").read_text(), *words]
    with shell.lines(argv, limit=LIMIT + 60) as lines:
        first = next(lines, "")
        if not first:
            raise MoorageError(f"nobody can listen at {address}, port {port}")
        yield Receiver(json.loads(first), lines)
