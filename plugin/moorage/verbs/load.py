"""moorage load: an image out of an archive, for the pods of this job's cluster."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from moorage import kind, kubeconfig, podman
from moorage.errors import UserError
from moorage.mooring import Mooring

# As kind does it. Unpacked is it when the first container needs it, by whichever way the node has for that.
IMPORT: Final = ("ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "--digests", "--no-unpack", "-")


def main(words: Sequence[str]) -> NoReturn:
    parser = argparse.ArgumentParser(
        prog="moorage load", description="Bring the images of an archive (podman save) into this job's cluster."
    )
    parser.add_argument("archive", metavar="ARCHIVE", type=Path)
    archive: Path = parser.parse_args(words).archive
    mooring = Mooring.of_this_job(os.environ)
    kubeconfig.there(mooring.places)
    _read_from(archive)
    # Podman ends as the import does, and so do we: nothing of ours is left to be done.
    program = mooring.places.programs / "podman"
    argv = [str(program), "exec", "--interactive", kind.node(mooring.job), *IMPORT]
    os.execve(program, argv, podman.script(os.environ, mooring.places))  # noqa: S606  # an argument list


def _read_from(archive: Path) -> None:
    """It becomes our standard input."""
    try:
        descriptor = os.open(archive, os.O_RDONLY)
    except OSError as error:
        raise UserError(
            f"{archive} cannot be read ({error.strerror})", "name an archive that `podman save` made"
        ) from None
    os.dup2(descriptor, 0)
