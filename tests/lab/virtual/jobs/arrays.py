"""Arrays of jobs that are expected to fail: submitted, waited for, and read all at once."""

from __future__ import annotations

import re

from support.faults.fault import CODE

from ..guest.many_commands import run_many
from ..guest.shell import Shell
from .batch import MOORED

RAN = "the script ran"


def home(user: str) -> str:
    return "/root" if user == "root" else f"/home/{user}"


def submission(user: str, count: int = 1, *options: str) -> list[str]:
    """The command with which root submits an array to the first node and waits for it; it prints its number."""
    where = [f"--chdir={home(user)}", f"--output={home(user)}/job-%A_%a.out", "--nodelist=n1", "--mem=100M"]
    sbatch = ["sbatch", "--parsable", "--wait", MOORED, f"--array=1-{count}", *where, *options, f"--wrap=echo {RAN}"]
    return ["runuser", "-u", user, "--", *sbatch]


def number(said: str) -> str:
    return said.strip().partition(";")[0]


def outputs(shell: Shell, array: str, user: str, count: int = 1) -> list[str]:
    """The output of each of its jobs, read as their owner."""
    files = [["cat", f"{home(user)}/job-{array}_{job}.out"] for job in range(1, count + 1)]
    return [end.stdout.strip() for end in run_many(shell, files, user)]


def refusal(said: str, line: str) -> bool:
    """True if the job ended with one line of its agent's that matches `line`, and its script never ran."""
    return bool(re.fullmatch(rf"moorage: {line}{CODE} \(more in /\S+\)", said.rpartition("\n")[2])) and RAN not in said


def ends(shell: Shell, array: str) -> list[str]:
    """State and exit code of each of its jobs, as the accounting has them."""
    job = ["--allocations", "--array", f"--jobs={array}", "--format=State,ExitCode"]
    return shell.output("sacct", "--noheader", "--parsable2", *job).splitlines()
