"""`moorage load`: load the images of an archive into this job's cluster, on all of its nodes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from moorage.cli.manual import IN_A_JOB, Manual, Parser
from moorage.common import podman
from moorage.common.description import Mooring
from moorage.common.errors import UserError
from moorage.common.progress import Progress, size
from moorage.user.cluster import kind_config, kubeconfig
from moorage.user.run import srun as step

# The same as kind calls. The first container unpacks the image, in the way that the node has for that.
IMPORT: Final = ("ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "--digests", "--no-unpack", "-")
STREAM: Final = Path("-")
HERE: Final = (sys.executable, "-I", "-m", "moorage", "load", "--here", str(STREAM))
STDIN: Final = 0
TICK: Final = 0.5
# Of what the import prints before it fails.
LAST_LINES: Final = 5
ABOUT: Final = """\
Load the images of an archive into this job's cluster, on all of its nodes.

The archive is what `podman save` or `docker save` writes. Pods use its images with imagePullPolicy Never or
IfNotPresent; no registry is needed."""
EXAMPLES: Final = (
    ("podman save --output tool.tar localhost/tool:1", "make the archive, where you have Podman"),
    ("moorage load ~/images/tool.tar", "load it, in the script of the job"),
    ("zstd --decompress --stdout tool.tar.zst | moorage load -", "load an archive from standard input"),
)


def main(words: Sequence[str]) -> int:
    wanted = parser().read(words)
    mooring = Mooring.of_this_job(os.environ)
    kubeconfig.there(mooring.places)
    if wanted.archive != STREAM:
        _read_from(wanted.archive)
    # Of several nodes, the one where the command was typed tells how it goes.
    progress = None if wanted.here else Progress(sys.stderr)
    if mooring.nodes > 1 and not wanted.here and not on_many(os.environ):
        return followed(*_everywhere(mooring), wanted.archive, progress)
    return followed(*_on_this_node(mooring), wanted.archive, progress)


def parser() -> Parser:
    made = Parser(prog="moorage load", manual=Manual(ABOUT, IN_A_JOB, EXAMPLES))
    made.add_argument("archive", metavar="ARCHIVE", type=Path, help="the archive, or - for standard input")
    made.add_argument("--here", action="store_true", help="load it on this node of the cluster only, and say nothing")
    return made


def on_many(environ: Mapping[str, str]) -> bool:
    """Whether this is a step over several nodes, in which each task loads for its own node."""
    number = environ.get("SLURM_STEP_NUM_NODES", "")
    return number.isdecimal() and int(number) > 1


def _on_this_node(mooring: Mooring) -> tuple[list[str], dict[str, str]]:
    program = mooring.places.programs / "podman"
    argv = [str(program), "exec", "--interactive", kind_config.node(mooring.job, mooring.place), *IMPORT]
    return argv, podman.script(os.environ, mooring.places)


def _everywhere(mooring: Mooring) -> tuple[list[str], dict[str, str]]:
    """By a step whose tasks all get its whole standard input: other nodes need not see the archive."""
    srun = step.srun(mooring.srun, os.environ)
    argv = step.argv(srun, mooring.job, mooring.nodes, HERE, mooring.hosts, tasks=1)
    return argv, step.environment(os.environ)


def followed(argv: Sequence[str], environ: Mapping[str, str], archive: Path, progress: Progress | None) -> int:
    """Run the import to its end, show how far it is, and end as it does; its own output shows only if it fails."""
    what = "what standard input has" if archive == STREAM else archive.name
    with TemporaryFile() as said, subprocess.Popen(argv, env=environ, stdout=said, stderr=said) as process:
        while process.returncode is None:
            if progress:
                progress.phase(f"loading {what}")
                progress.tick(_so_far())
            with suppress(subprocess.TimeoutExpired):
                process.wait(TICK)
        if process.returncode:
            sys.stderr.write("".join(_last_lines(said)))
        elif progress:
            progress.say(f"loaded {what} in {progress.elapsed:.1f} s")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _so_far() -> str:
    """How much of the archive is read: the import shares the position in the file with us."""
    status = os.fstat(STDIN)
    if not stat.S_ISREG(status.st_mode):
        return ""
    return f"{size(os.lseek(STDIN, 0, os.SEEK_CUR))} of {size(status.st_size)}"


def _last_lines(said: IO[bytes]) -> list[str]:
    said.seek(0)
    return said.read().decode(errors="backslashreplace").splitlines(keepends=True)[-LAST_LINES:]


def _read_from(archive: Path) -> None:
    """Make the archive our standard input."""
    try:
        descriptor = os.open(archive, os.O_RDONLY)
    except OSError as error:
        raise UserError(
            f"{archive} cannot be read ({error.strerror})", "name an archive that `podman save` made", code="M-KUBE-1"
        ) from None
    os.dup2(descriptor, STDIN)
