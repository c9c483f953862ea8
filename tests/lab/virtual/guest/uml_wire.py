"""The networks of one lab's UML guests, in a network namespace of this process, which ends with its last process.

    uml_wire NODES LISTENER...

Each guest has two tap devices here. By door1 ssh comes to it; wire1 is a port of the bridge between guests. All guests
have the same address behind their doors: a connection goes to one of them because its socket is bound to that door.
LISTENER is the number of an open socket for each guest, on the loopback of this machine. "ready" is printed when guests
may start. It runs alone, without the lab's modules.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path

GATEWAY = "10.0.2.2/24"
GUEST = ("10.0.2.15", 22)
CHUNK = 1 << 16


def main() -> None:
    nodes, *listeners = map(int, sys.argv[1:])
    make_devices(nodes)
    asyncio.run(serve([socket.socket(fileno=number) for number in listeners]))


def make_devices(nodes: int) -> None:
    for scope in ("all", "default"):
        place = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        # A host without IPv6 has no such file.
        if place.exists():
            place.write_text("1")
    lines = ["link set lo up", "link add wire type bridge mcast_snooping 0", "link set wire up"]
    for number in range(1, nodes + 1):
        lines += [
            f"tuntap add dev door{number} mode tap vnet_hdr",
            f"address add {GATEWAY} dev door{number}",
            f"link set door{number} up",
            f"tuntap add dev wire{number} mode tap vnet_hdr",
            f"link set wire{number} master wire up",
        ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


async def serve(listeners: list[socket.socket]) -> None:
    for number, listener in enumerate(listeners, start=1):
        await asyncio.start_server(Door(f"door{number}").forward, sock=listener)
    print("ready", flush=True)
    await asyncio.Event().wait()


class Door:
    """The way to one guest's ssh."""

    def __init__(self, device: str) -> None:
        self._device = device

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A guest that does not answer is a connection that ends."""
        with contextlib.suppress(OSError), contextlib.closing(writer):
            inner_reader, inner_writer = await self._connect()
            with contextlib.closing(inner_writer):
                await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        guest = socket.socket()
        guest.setblocking(False)
        guest.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self._device.encode())
        try:
            await asyncio.get_running_loop().sock_connect(guest, GUEST)
            return await asyncio.open_connection(sock=guest)
        except BaseException:
            guest.close()
            raise


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


if __name__ == "__main__":
    main()
