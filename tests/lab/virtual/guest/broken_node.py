"""Faults of a guest's node that last as long as a test wants."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.common.command import Completed
from support import faults

from .shell import Shell

IN_GUEST = Path(__file__).resolve().parents[1] / "in_guest"
FAULTS = Path(faults.__file__).parent
PLACE = "/run/lab"
PROGRAM = ("env", f"--chdir={PLACE}", "python3", "-B", "-m", "in_guest.prolog_with_faults")
CONFIGURATION = "/etc/moorage/moorage.yaml"
KEPT = f"{PLACE}/moorage.yaml"
LIMIT = 600.0


@dataclass(frozen=True)
class Outcome:
    """The result of the Prolog on a node with a fault."""

    name: str
    code: int
    # To slurmd.
    said: str
    # To the job.
    refusal: str
    # To the administrator, where the code is not 0.
    journal: str
    # In the job's run directory.
    made: list[str]
    # Nothing of it was left after that.
    gone: bool
    seconds: float


def packed() -> bytes:
    """The programs that break a node, and the catalogue of faults."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for package, directory in (("in_guest", IN_GUEST), ("support/faults", FAULTS)):
            for file in sorted(directory.glob("*.py")):
                tar.add(file, f"{package}/{file.name}")
    return archive.getvalue()


def bring(shell: Shell) -> None:
    """All in one: each command in a guest takes its time."""
    shell.run(["sh", "-euc", 'mkdir -p "$1" && tar -x -C "$1" --no-same-owner', "sh", PLACE], input=packed())


def prologs(shell: Shell, *names: str) -> dict[str, Outcome]:
    """Run the Prolog with each of these faults in turn."""
    bring(shell)
    said = shell.run([*PROGRAM, "hooks", *names], limit=LIMIT).stdout
    outcomes = (Outcome(**json.loads(line)) for line in said.splitlines())
    return {outcome.name: outcome for outcome in outcomes}


def during(shell: Shell, name: str, argv: Sequence[str], *, ok: Sequence[int] = (0,)) -> Completed:
    """Run a command of root's in the guest while its node is broken so."""
    bring(shell)
    return shell.run([*PROGRAM, "during", name, *argv], limit=LIMIT, ok=ok)


@contextmanager
def configured(shell: Shell, *settings: str) -> Iterator[None]:
    """The guest's Moorage with other settings for all jobs of the block."""
    bring(shell)
    shell.run(["cp", "--archive", CONFIGURATION, KEPT])
    try:
        for setting in settings:
            shell.run([*PROGRAM, "configure", setting])
        yield
    finally:
        shell.run(["cp", "--archive", KEPT, CONFIGURATION])
