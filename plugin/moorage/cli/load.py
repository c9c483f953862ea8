"""moorage load: an image out of an archive, for the pods of this job's cluster, on all of its nodes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from moorage.common import podman
from moorage.common.description import Mooring
from moorage.common.errors import UserError
from moorage.user.cluster import kind_config, kubeconfig
from moorage.user.run import srun as step

# As kind does it. Unpacked is it when the first container needs it, by whichever way the node has for that.
IMPORT: Final = ("ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "--digests", "--no-unpack", "-")
STREAM: Final = Path("-")
HERE: Final = (sys.executable, "-I", "-m", "moorage", "load", "--here", str(STREAM))


def main(words: Sequence[str]) -> NoReturn:
    parser = argparse.ArgumentParser(
        prog="moorage load", description="Bring the images of an archive (podman save) into this job's cluster."
    )
    parser.add_argument("archive", metavar="ARCHIVE", type=Path, help="or - for what comes in")
    parser.add_argument("--here", action="store_true", help="on this node of the cluster alone")
    wanted = parser.parse_args(words)
    mooring = Mooring.of_this_job(os.environ)
    kubeconfig.there(mooring.places)
    if wanted.archive != STREAM:
        _read_from(wanted.archive)
    if mooring.nodes > 1 and not wanted.here and not on_many(os.environ):
        _load_everywhere(mooring)
    # Podman ends as the import does, and so do we: nothing of ours is left to be done.
    program = mooring.places.programs / "podman"
    argv = [str(program), "exec", "--interactive", kind_config.node(mooring.job, mooring.place), *IMPORT]
    os.execve(program, argv, podman.script(os.environ, mooring.places))  # noqa: S606  # an argument list


def on_many(environ: Mapping[str, str]) -> bool:
    """A step of the user's has each of its nodes see to itself."""
    number = environ.get("SLURM_STEP_NUM_NODES", "")
    return number.isdecimal() and int(number) > 1


def _load_everywhere(mooring: Mooring) -> NoReturn:
    """Of a step's standard input every task gets all: the archive need not be where other nodes can read it."""
    srun = step.srun(mooring.srun, os.environ)
    argv = step.argv(srun, mooring.job, mooring.nodes, HERE, mooring.hosts, tasks=1)
    os.execve(srun, argv, step.environment(os.environ))  # noqa: S606  # an argument list


def _read_from(archive: Path) -> None:
    """It becomes our standard input."""
    try:
        descriptor = os.open(archive, os.O_RDONLY)
    except OSError as error:
        raise UserError(
            f"{archive} cannot be read ({error.strerror})", "name an archive that `podman save` made"
        ) from None
    os.dup2(descriptor, 0)
