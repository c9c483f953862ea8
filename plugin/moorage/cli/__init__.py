"""The command `moorage`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from moorage import __doc__ as summary
from moorage import __version__
from moorage.common.errors import reported


@dataclass(frozen=True)
class Verb:
    """`module` has main(words) -> int | None, and is imported only when it is called: jobs wait for it."""

    summary: str
    module: str

    def call(self, words: Sequence[str]) -> int:
        return import_module(self.module).main(words) or 0


VERBS: Final = {
    "run": Verb("run a job's script with what the job asked for around it", "moorage.user.run.runner"),
    "agent": Verb("serve a job on one of its nodes; `run` starts it", "moorage.user.agent.agent"),
    "status": Verb("show what your jobs have on this node", "moorage.cli.status"),
    "kubeconfig": Verb("say where this job's kubeconfig is, or show it", "moorage.cli.kubeconfig"),
    "load": Verb("bring an image out of an archive into this job's cluster", "moorage.cli.load"),
    "down": Verb("take down early what this job has", "moorage.cli.down"),
    "sweep": Verb("clear up after jobs that nobody answers for", "moorage.cli.sweep"),
    "check-spec": Verb("say whether SPEC may follow --k8s=", "moorage.cli.check_spec"),
    "doctor": Verb("look for what would keep jobs from starting on this node", "moorage.cli.doctor"),
    "config": Verb("show every setting and where it comes from", "moorage.cli.config"),
    "image": Verb("keep the images that jobs on this node start from", "moorage.cli.image"),
    "net": Verb("say how containers reach the outside from this node", "moorage.cli.net"),
}


def main(argv: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if argv is None else argv
    with reported("moorage"):
        # What follows the verb is the verb's, untouched: argparse would take a `--` out of a script's arguments.
        if words and words[0] in VERBS:
            sys.exit(VERBS[words[0]].call(words[1:]))
        arguments = parser()
        arguments.parse_args(words)
        arguments.error("nothing to do: --help shows what there is")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="moorage", description=summary)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", title="verbs")
    for name, verb in VERBS.items():
        verbs.add_parser(name, help=verb.summary, add_help=False)
    return parser
