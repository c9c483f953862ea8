"""A pause in a job's script: the script waits there while a test looks at the job, until the test lets it go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..guest.shell import Shell
from .batch import LIMIT as SOON
from .batch import Job, submit

SAYS = "the script pauses"
LIMIT = 60.0
# On the node's own disk, because no pipe leads through a file server.
PLACE = "/local/{user}/pause-{job}"
# To be put into the script, once.
PAUSE = f"""
pause={PLACE.format(user="$USER", job="$SLURM_JOB_ID")}
mkfifo "$pause"
echo {SAYS!r}
read -r _ <"$pause"
rm "$pause"
"""


@contextmanager
def paused(shell: Shell, script: str, *options: str, user: str = "alice", within: float = SOON) -> Iterator[Job]:
    """A job whose script pauses; after the block the script goes on to its end, or is ended if the block failed."""
    job = submit(shell, script, *options, user=user)
    try:
        job.wait_said(SAYS, within)
        yield job
        let_go_on(job)
        job.wait_gone()
    finally:
        job.cancel("--quiet")


def let_go_on(job: Job) -> None:
    place = PLACE.format(user=job.user, job=job.id)
    job.shell.run(["timeout", f"{LIMIT:.0f}", "sh", "-c", 'echo >"$1"', "sh", place])
