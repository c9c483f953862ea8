"""QEMU's control socket: pause, snapshot, power cut."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Self

LIMIT = 120.0


class MonitorError(Exception):
    """QEMU refused a command."""


class Monitor:
    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(LIMIT)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("r")
        self._lines.readline()  # QEMU's greeting
        self.execute("qmp_capabilities")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def execute(self, command: str, **arguments: str) -> object:
        self._socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while answer := json.loads(self._lines.readline() or "{}"):
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise MonitorError(f"{command}: {answer['error']['desc']}")
        raise MonitorError(f"{command}: QEMU closed its control socket")

    def human(self, line: str) -> None:
        """A command of the human monitor, which reports trouble as text."""
        text = self.execute("human-monitor-command", **{"command-line": line})
        if text:
            raise MonitorError(f"{line}: {str(text).strip()}")
