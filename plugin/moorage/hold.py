"""The keeper's side of the holder of the job's network namespace."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final, Self

from moorage import visitor
from moorage.errors import MoorageError
from moorage.mooring import Mooring
from moorage.podman import inside

# By where it really is: in there Podman has a /run of its own.
PYTHON: Final = Path(sys.executable).parent.resolve() / Path(sys.executable).name
HOLDER: Final = (str(PYTHON), "-I", "-m", "moorage.holder")
LONGEST: Final = 4096
BACKLOG: Final = 64
LOOPBACK: Final = "127.0.0.1"


class Hold:
    """`hand_up` gets a descriptor of the namespace, which it does not keep."""

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket, hand_up: Callable[[int], object]) -> None:
        self.process = process
        self.link = link
        self.hand_up = hand_up
        self.up: set[str] = set()
        self.gone = False

    @classmethod
    def start(cls, mooring: Mooring, hand_up: Callable[[int], object]) -> Self:
        """Into the namespace, which is made for it if there is none; that takes its time, and is not waited for."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [str(mooring.podman), "unshare", "--rootless-netns", *HOLDER]
            environment = inside({"LC_ALL": "C.UTF-8", **os.environ}, mooring.places)
            process = subprocess.Popen(argv, env=environment, cwd="/", stdin=theirs.fileno(), start_new_session=True)
        hold = cls(process, ours, hand_up)
        if mooring.gateway:
            hold._say({"gateway": asdict(mooring.gateway)})
        return hold

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
        with socket.create_server((LOOPBACK, 0), backlog=BACKLOG) as door, visitor.kernel() as kernel:
            namespace = os.open(Path(f"/proc/{process}/ns/net"), os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._say({"forward": [address, port]}, door.fileno(), kernel.fileno(), namespace)
            finally:
                os.close(namespace)
            return int(door.getsockname()[1])

    def _say(self, message: dict[str, object], *descriptors: int) -> None:
        try:
            socket.send_fds(self.link, [json.dumps(message).encode()], descriptors)
        except OSError as error:
            raise MoorageError(f"the holder of the job's network does not listen: {error.strerror}") from error
