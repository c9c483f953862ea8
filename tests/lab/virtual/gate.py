"""A gate in a job's script: there the script waits, while a test looks at the job, until the test lets it through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .jobs import LIMIT as SOON
from .jobs import Job, submit
from .shell import Shell

SAYS = "at the gate"
LIMIT = 60.0
# On the node's own disk, because no pipe leads through a file server.
PLACE = "/local/{user}/gate-{job}"
# To be put into the script, once.
GATE = f"""
gate={PLACE.format(user="$USER", job="$SLURM_JOB_ID")}
mkfifo "$gate"
echo {SAYS!r}
read -r _ <"$gate"
rm "$gate"
"""


@contextmanager
def held(shell: Shell, script: str, *options: str, user: str = "alice", within: float = SOON) -> Iterator[Job]:
    """A job whose script is at its gate; after the block it goes on to its end, or is ended if the block failed."""
    job = submit(shell, script, *options, user=user)
    try:
        job.wait_said(SAYS, within)
        yield job
        let_through(job)
        job.wait_gone()
    finally:
        job.cancel("--quiet")


def let_through(job: Job) -> None:
    place = PLACE.format(user=job.user, job=job.id)
    job.shell.run(["timeout", f"{LIMIT:.0f}", "sh", "-c", 'echo >"$1"', "sh", place])
