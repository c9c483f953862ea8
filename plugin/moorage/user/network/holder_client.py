"""The keeper's side of the holder of the job's network namespace."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.common.description import Mooring
from moorage.common.errors import MoorageError
from moorage.common.podman import inside
from moorage.user import messages
from moorage.user.messages import Forward, Gateway, HolderCommand, Namespace
from moorage.user.network import forward

# By where it really is: in there Podman has a /run of its own.
PYTHON: Final = Path(sys.executable).parent.resolve() / Path(sys.executable).name
HOLDER: Final = (str(PYTHON), "-I", "-m", "moorage.user.network.holder")
LONGEST: Final = 4096
BACKLOG: Final = 64
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class Forwarding:
    """A command to forward, and what comes with it. The listener stays open here: no one else can take its port."""

    command: Forward
    listener: socket.socket
    namespace: int


class HolderClient:
    """Starts the holder, and starts it again; Podman makes the network namespace if there is none yet."""

    def __init__(self, mooring: Mooring, on_namespace: Callable[[int], object]) -> None:
        """`on_namespace` is called with a descriptor of the namespace, which is closed afterwards."""
        self.mooring = mooring
        self.on_namespace = on_namespace
        # A holder that is started again gets them, too.
        self.forwardings: list[Forwarding] = []
        self._start()

    def _start(self) -> None:
        self.gone = False
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [str(self.mooring.podman), "unshare", "--rootless-netns", *HOLDER]
            environment = inside({"LC_ALL": "C.UTF-8", **os.environ}, self.mooring.places)
            self.process = subprocess.Popen(
                argv, env=environment, cwd="/", stdin=theirs.fileno(), start_new_session=True
            )
        if gateway := self.mooring.gateway:
            self._send(Gateway(gateway.address, gateway.router))

    def start_again(self) -> None:
        """Start another holder in place of one that has ended; it hands over its namespace again."""
        self.connection.close()
        # If it ends as well, `receive` notices that next.
        with suppress(MoorageError):
            self._start()
            for forwarding in self.forwardings:
                self._send_forwarding(forwarding)

    def fileno(self) -> int:
        return self.connection.fileno()

    def receive(self) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(self.connection, LONGEST, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            packet, descriptors = b"", []
        if not packet:
            self.gone = True
        elif messages.decode_holder_event(json.loads(packet)) == Namespace():
            self.on_namespace(descriptors[0])
        for descriptor in descriptors:
            os.close(descriptor)

    def forward(self, address: str, port: int, process: int) -> int:
        """Forward to an address in the network of that process; return the port on this node's loopback."""
        listener = socket.create_server((LOOPBACK, 0), backlog=BACKLOG)
        namespace = os.open(Path(f"/proc/{process}/ns/net"), os.O_RDONLY | os.O_CLOEXEC)
        self.forwardings.append(Forwarding(Forward(address, port), listener, namespace))
        self._send_forwarding(self.forwardings[-1])
        return int(listener.getsockname()[1])

    def _send_forwarding(self, one: Forwarding) -> None:
        with forward.kernel() as kernel:
            self._send(one.command, one.listener.fileno(), kernel.fileno(), one.namespace)

    def _send(self, command: HolderCommand, *descriptors: int) -> None:
        try:
            packet = json.dumps(messages.encode_command(command)).encode()
            socket.send_fds(self.connection, [packet], descriptors)
        except OSError as error:
            raise MoorageError(f"the holder of the job's network does not listen: {error.strerror}") from error
