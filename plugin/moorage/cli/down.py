"""`moorage down`: what a job has is taken down before the job ends."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from moorage.common.description import Mooring
from moorage.common.errors import MoorageError, UserError
from moorage.user.agent.exec_client import DOWN, LENGTH

LEEWAY: Final = 15.0


def main(words: Sequence[str]) -> None:
    argparse.ArgumentParser(prog="moorage down", description="Take down early what this job has.").parse_args(words)
    mooring = Mooring.of_this_job(os.environ)
    take_down(mooring.places.socket, mooring.waits.kill + LEEWAY)


def take_down(door: Path, limit: float) -> None:
    """Ask the job's keeper, and wait until it does not hold our connection any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(limit)
        try:
            connection.connect(os.fspath(door))
            connection.sendall(len(DOWN).to_bytes(LENGTH, "big") + DOWN)
            connection.recv(1)
        except (FileNotFoundError, ConnectionRefusedError):
            raise UserError("there is nothing up in this job", "it may have been taken down already") from None
        except TimeoutError:
            raise MoorageError(f"not down after {limit:g} s; it goes on") from None
        except ConnectionResetError:
            return
