"""Batch jobs in the lab: submitted, watched, ended."""

from __future__ import annotations

import time
from dataclasses import dataclass

from moorage.common.command import CommandFailed
from moorage.common.errors import MoorageError

from ..guest.shell import Shell

LIMIT = 240.0
MOORED = "--k8s=cluster=none"
# Not yet at its end: everything else that sacct or scontrol may say is one.
UNDER_WAY = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "SIGNALING", "STAGE_OUT")
# How a job that has lost a node has ended with it: it goes on without.
WITHOUT_A_NODE = "RESIZING"
# A job that has ended says no more. Its output may come from another node: once it is there, each look at it is at the
# file server, but for some seconds before that the node may remember that it is not.
_UNTIL_SAID = """
until grep -qs -- "$1" "$2"; do
    [ -z "$over" ] || exit 3
    sleep 0.2
    rounds=$((rounds + 1))
    [ $((rounds % 10)) = 0 ] || continue
    case $(squeue --noheader --jobs="$3" 2>&1) in
    "" | *"Invalid job id"*) [ ! -e "$2" ] || over=yes ;;
    esac
done
"""
_ENDED = 3
_TIMED_OUT = 124
_UNTIL_GONE = 'while squeue --noheader --jobs="$1" 2>/dev/null | grep -q .; do sleep 0.2; done'


@dataclass(frozen=True)
class Job:
    """One job of `user`'s; its output lies in his home, which all nodes share."""

    shell: Shell
    id: str
    user: str

    @property
    def place(self) -> str:
        return f"/home/{self.user}/job-{self.id}.out"

    @property
    def output(self) -> str:
        return self.shell.output("cat", self.place, user=self.user)

    def wait_said(self, text: str, limit: float = LIMIT) -> None:
        """Until the job's output contains `text`, a basic regular expression; an error once it never will."""
        self._wait(_UNTIL_SAID, text, self.place, self.id, limit=limit, what=f"has not said {text!r}")

    def wait_gone(self, limit: float = LIMIT) -> None:
        """Until squeue knows the job no more: it has ended, its Epilog too."""
        self._wait(_UNTIL_GONE, self.id, limit=limit, what="has not ended")

    def cancel(self, *options: str) -> None:
        self.shell.run(["scancel", *options, self.id])

    def show(self, field: str) -> str:
        """A field of `scontrol show job`, which knows a job for some minutes after its end."""
        said = self.shell.output("scontrol", "--oneliner", "show", "job", self.id)
        return dict(word.partition("=")[::2] for word in said.split()).get(field, "")

    def wait_state(self, *wanted: str, limit: float = LIMIT) -> str:
        deadline = time.monotonic() + limit
        while (state := self.show("JobState")) not in wanted:
            if time.monotonic() > deadline:
                raise MoorageError(f"job {self.id} is {state} and not {' or '.join(wanted)} after {limit:.0f} s")
            time.sleep(0.2)
        return state

    def accounted(self, fields: str, *, step: str = "") -> list[str]:
        """What sacct says once it knows the job's end: of the job, or of one of its steps."""
        name, deadline = f"{self.id}{'.' if step else ''}{step}", time.monotonic() + LIMIT
        while True:
            rows = self.shell.output(
                "sacct", "--noheader", "--parsable2", f"--jobs={name}", f"--format=JobID,State,{fields}"
            )
            for row in (line.split("|") for line in rows.splitlines()):
                if row[0] == name and row[1].split()[0] not in (*UNDER_WAY, WITHOUT_A_NODE):
                    return row[2:]
            if time.monotonic() > deadline:
                raise MoorageError(f"sacct does not know the end of {name}: {rows!r}")
            time.sleep(0.5)

    @property
    def end(self) -> tuple[str, str]:
        """Its state and its exit code, as sacct has them."""
        state, code = self.accounted("State,ExitCode")
        return state.split()[0], code

    @property
    def full_minutes(self) -> int:
        """How long it has run, rounded up where too little is left of a minute between a signal and its end."""
        hours, minutes, seconds = map(int, self.show("RunTime").split(":"))
        return hours * 60 + minutes + (seconds > 30)

    def _wait(self, loop: str, *words: str, limit: float, what: str) -> None:
        try:
            waiting = ["timeout", f"{limit:.0f}", "sh", "-c", loop, "sh", *words]
            self.shell.run(waiting, user=self.user, limit=limit + 60)
        except CommandFailed as error:
            if error.status not in (_ENDED, _TIMED_OUT):
                raise
            when = "at its end" if error.status == _ENDED else f"after {limit:.0f} s"
            said = self.shell.run(["cat", self.place], user=self.user, ok=range(256)).stdout
            raise MoorageError(f"job {self.id} {what} {when}; its output: {said!r}") from None


def submit(shell: Shell, script: str, *options: str, user: str = "alice") -> Job:
    """Submit these lines of bash from the user's home; a job without `MOORED` or the like is a plain one."""
    argv = ["sbatch", "--parsable", f"--output=/home/{user}/job-%j.out", *options]
    said = shell.run(argv, user=user, input=f"#!/bin/bash\n{script}\n".encode()).stdout
    return Job(shell, said.strip().partition(";")[0], user)


def run(shell: Shell, script: str, *options: str, user: str = "alice") -> Job:
    """Submit and wait for the end, Epilog included."""
    job = submit(shell, script, *options, user=user)
    job.wait_gone()
    return job
