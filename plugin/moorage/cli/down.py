"""`moorage down`: tear down what a job has before the job ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from moorage.cli.manual import IN_A_JOB, Manual, Parser
from moorage.common.description import Mooring
from moorage.common.errors import MoorageError, UserError
from moorage.user.agent.exec_client import DOWN, LENGTH

LEEWAY: Final = 15.0
ABOUT: Final = """\
Tear down this job's cluster and containers on all its nodes, and wait until they are gone.

The script goes on, and has the job's CPUs and memory for itself. Nothing brings the cluster back in this job."""
EXAMPLES: Final = (
    ("kubectl logs job/train > result.txt; moorage down; ./evaluate result.txt", "no pod is needed now"),
)


def main(words: Sequence[str]) -> None:
    parser().read(words)
    mooring = Mooring.of_this_job(os.environ)
    take_down(mooring.places.socket, mooring.waits.kill + LEEWAY)


def parser() -> Parser:
    return Parser(prog="moorage down", manual=Manual(ABOUT, IN_A_JOB, EXAMPLES))


def take_down(keeper: Path, limit: float) -> None:
    """Ask the job's keeper, and wait until it closes the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(limit)
        try:
            connection.connect(os.fspath(keeper))
            connection.sendall(len(DOWN).to_bytes(LENGTH, "big") + DOWN)
            connection.recv(1)
        except (FileNotFoundError, ConnectionRefusedError):
            raise UserError(
                "there is nothing up in this job", "it may have been torn down already", code="M-COMMAND-1"
            ) from None
        except TimeoutError:
            raise MoorageError(f"not torn down after {limit:g} s; it goes on", code="M-COMMAND-2") from None
        except ConnectionResetError:
            return
