"""The command `moorage`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from moorage.common.errors import reported

USERS, ADMINISTRATORS, INTERNAL = "for users", "for administrators", "called by Moorage itself"


@dataclass(frozen=True)
class Verb:
    """`module` has main(words) -> int | None and parser(). It is imported when it is called: jobs wait for it."""

    summary: str
    module: str
    group: str = USERS

    def call(self, words: Sequence[str]) -> int:
        return import_module(self.module).main(words) or 0


VERBS: Final = {
    "status": Verb("show what your jobs have on this node", "moorage.cli.status"),
    "kubeconfig": Verb("print the path of this job's kubeconfig, or its content", "moorage.cli.kubeconfig"),
    "load": Verb("load an image from an archive into this job's cluster", "moorage.cli.load"),
    "down": Verb("tear down early what this job has", "moorage.cli.down"),
    "doctor": Verb("check whether jobs with --k8s can start on this node", "moorage.cli.doctor"),
    "explain": Verb("explain a line of Moorage by the code at its end", "moorage.cli.explain"),
    "help": Verb("list the verbs, or explain one of them", "moorage.cli.help"),
    "config": Verb("show the configuration of this node", "moorage.cli.config", ADMINISTRATORS),
    "image": Verb("manage the images that jobs on this node start from", "moorage.cli.image", ADMINISTRATORS),
    "net": Verb("explain and measure the uplinks of this node", "moorage.cli.net", ADMINISTRATORS),
    "sweep": Verb("clean up after jobs that ended without cleaning up", "moorage.cli.sweep", ADMINISTRATORS),
    "run": Verb("prepare what the job asked for, run its script, tear it down", "moorage.cli.run", INTERNAL),
    "agent": Verb("serve a job on one of its nodes", "moorage.cli.agent", INTERNAL),
    "check-spec": Verb("check a --k8s= value", "moorage.cli.check_spec", INTERNAL),
}


def main(argv: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if argv is None else argv
    with reported("moorage"):
        try:
            code = _flushed(words)
        except BrokenPipeError:
            if not _reader_is_gone():
                raise
            code = 0
        sys.exit(code)


def _flushed(words: Sequence[str]) -> int:
    try:
        code = call(words)
    except SystemExit:
        # argparse ends so where it has printed the help.
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def call(words: Sequence[str]) -> int:
    # The words after the verb go to the verb untouched: argparse would drop a `--` from a script's arguments.
    if words and words[0] in VERBS:
        return VERBS[words[0]].call(words[1:])
    from moorage.cli.help import without_verb

    return without_verb(words)


def _reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more, as behind `| head`; then it is replaced."""
    import os
    import select

    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    gone = any(events & select.POLLERR for _, events in poll.poll(0))
    if gone:
        # Python flushes once more at its end, and must not fail there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone
