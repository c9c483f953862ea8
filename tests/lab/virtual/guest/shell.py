"""Commands in a guest, over one kept ssh connection: a new one costs seconds under emulation."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import CommandFailed, Completed, run

HOST = "root@127.0.0.1"
LIMIT = 300.0


@dataclass(frozen=True)
class Shell:
    port: int
    key: Path
    control: Path

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str = "root",
        input: bytes = b"",
        limit: float = LIMIT,
        ok: Sequence[int] = (0,),
    ) -> Completed:
        """Run `argv` in the guest as `user`, with a login's environment."""
        try:
            return run(self.command_line(argv, user), input=input, limit=limit, ok=ok)
        except CommandFailed as error:
            told = (f"in the guest, as {user}:", *argv)
            raise type(error)(told, error.reason, error.status, error.stdout, error.stderr) from None

    def output(self, *argv: str, user: str = "root", limit: float = LIMIT) -> str:
        return self.run(argv, user=user, limit=limit).stdout.strip()

    def attach(self, command: str = "") -> int:
        """Give the terminal to a shell command in the guest, or to a shell; the exit code is the command's."""
        words = [command] if command else []
        return subprocess.call(["ssh", *([] if command else ["-t"]), *self._options(), HOST, *words])

    @contextmanager
    def lines(self, argv: Sequence[str], *, user: str = "root", limit: float = LIMIT) -> Iterator[Iterator[str]]:
        """The command's output line by line, as it comes; what still runs at the end of the block is ended."""
        process = subprocess.Popen(
            self.command_line(argv, user), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        alarm = threading.Timer(limit, process.kill)
        alarm.start()
        try:
            yield (line.rstrip("\n") for line in process.stdout or ())
        finally:
            alarm.cancel()
            process.kill()
            process.communicate()

    def command_line(self, argv: Sequence[str], user: str = "root") -> list[str]:
        wanted = argv if user == "root" else ["runuser", "--login", user, "--command", shlex.join(argv)]
        return ["ssh", *self._options(), HOST, shlex.join(wanted)]

    def put(self, source: Path, target: str, *, mode: str = "644", owner: str = "root") -> None:
        """Written by its owner: on a home from a server that trusts no root, nobody else could."""
        write = 'mkdir -p "${1%/*}" && cat >"$1" && chmod "$2" "$1"'
        self.run(["sh", "-euc", write, "sh", target, mode], user=owner, input=source.read_bytes())

    def hang_up(self) -> None:
        """Drop the kept connection: the guest behind it is another one now."""
        with suppress(FileNotFoundError):
            subprocess.run(
                ["ssh", *self._options(), "-O", "exit", HOST],
                capture_output=True,
                timeout=LIMIT,
                check=False,
            )
            self.control.unlink()

    @property
    def configuration(self) -> str:
        """For other programs that talk to the guest by ssh: a file for `ssh -F`."""
        return "\n".join(f"{name} {value}" for name, value in self._settings().items()) + "\n"

    def _options(self) -> list[str]:
        return ["-F", "none", *(part for name, value in self._settings().items() for part in ("-o", f"{name}={value}"))]

    def _settings(self) -> dict[str, str]:
        return {
            "Port": str(self.port),
            "IdentityFile": str(self.key),
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "10",
            "ServerAliveInterval": "30",
            "ServerAliveCountMax": "10",
            # Guests are reached on the loopback only, and their host key is made anew with every image.
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "ControlMaster": "auto",
            "ControlPersist": "yes",
            "ControlPath": str(self.control),
        }
