"""The time for which a node is busy after a job."""

from __future__ import annotations

import re

from ..guest.shell import Shell
from ..jobs.batch import Job

# The last line of such a job's script.
ENDS = "date '+the script ends at %s.%N'"
LIMIT = 240.0
_IDLE = 'until [ "$(sinfo --noheader --nodes=n1 --format=%T --partition=main)" = idle ]; do :; done; date +%s.%N'


def busy(shell: Shell, job: Job, limit: float = LIMIT) -> float:
    """From the end of the job's script until the first node is idle; `limit` is for the script."""
    job.wait_said("^the script ends", limit)
    idle = float(shell.output("timeout", f"{LIMIT:.0f}", "sh", "-c", _IDLE))
    ended = re.search(r"^the script ends at ([\d.]+)", job.output, re.MULTILINE)
    assert ended
    return idle - float(ended[1])
