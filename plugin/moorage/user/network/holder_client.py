"""The keeper's side of the holder of the job's network namespace."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from moorage.common.description import Mooring
from moorage.common.errors import MoorageError
from moorage.common.podman import inside
from moorage.user.network import forward as visitor

# By where it really is: in there Podman has a /run of its own.
PYTHON: Final = Path(sys.executable).parent.resolve() / Path(sys.executable).name
HOLDER: Final = (str(PYTHON), "-I", "-m", "moorage.user.network.holder")
LONGEST: Final = 4096
BACKLOG: Final = 64
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class Forward:
    """The door stays ours, so that nobody else can stand behind it."""

    address: str
    port: int
    door: socket.socket
    namespace: int


class Hold:
    """`hand_up` gets a descriptor of the namespace, which it does not keep."""

    def __init__(self, mooring: Mooring, hand_up: Callable[[int], object]) -> None:
        """Into the namespace, which is made for it if there is none; that takes its time, and is not waited for."""
        self.mooring = mooring
        self.hand_up = hand_up
        self.up: set[str] = set()
        # What a next holder is told, too.
        self.forwards: list[Forward] = []
        self._start()

    def _start(self) -> None:
        self.gone = False
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [str(self.mooring.podman), "unshare", "--rootless-netns", *HOLDER]
            environment = inside({"LC_ALL": "C.UTF-8", **os.environ}, self.mooring.places)
            self.process = subprocess.Popen(
                argv, env=environment, cwd="/", stdin=theirs.fileno(), start_new_session=True
            )
        if self.mooring.gateway:
            self._say({"gateway": asdict(self.mooring.gateway)})

    def start_again(self) -> None:
        """Another one in place of one that has ended, which has not finished anything; it hands up what it finds."""
        self.link.close()
        # If it has ended as well, that is heard next.
        with suppress(MoorageError):
            self._start()
            for one in self.forwards:
                self._tell(one)

    def fileno(self) -> int:
        return self.link.fileno()

    def hear(self) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(self.link, LONGEST, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            packet, descriptors = b"", []
        match json.loads(packet) if packet else None:
            case None:
                self.gone = True
            case {"namespace": True}:
                self.hand_up(descriptors[0])
            case {"up": str(what)}:
                self.up.add(what)
        for descriptor in descriptors:
            os.close(descriptor)

    def forward(self, address: str, port: int, process: int) -> int:
        """The port of this node's loopback by which that address is reached, as from the network of that process."""
        door = socket.create_server((LOOPBACK, 0), backlog=BACKLOG)
        namespace = os.open(Path(f"/proc/{process}/ns/net"), os.O_RDONLY | os.O_CLOEXEC)
        self.forwards.append(Forward(address, port, door, namespace))
        self._tell(self.forwards[-1])
        return int(door.getsockname()[1])

    def _tell(self, one: Forward) -> None:
        with visitor.kernel() as kernel:
            self._say({"forward": [one.address, one.port]}, one.door.fileno(), kernel.fileno(), one.namespace)

    def _say(self, message: dict[str, object], *descriptors: int) -> None:
        try:
            socket.send_fds(self.link, [json.dumps(message).encode()], descriptors)
        except OSError as error:
            raise MoorageError(f"the holder of the job's network does not listen: {error.strerror}") from error
