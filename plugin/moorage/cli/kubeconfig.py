"""`moorage kubeconfig`: the access to this job's cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence

from moorage.cli.manual import IN_A_JOB, Manual, Parser
from moorage.common.description import Mooring
from moorage.user.cluster import kubeconfig

ABOUT = """\
Print the path of the kubeconfig of this job's cluster.

The script of a job has it in KUBECONFIG already. A step that starts otherwise asks for it here."""
EXAMPLES = (
    ("export KUBECONFIG=$(moorage kubeconfig)", "in a step, use the job's cluster"),
    ("moorage kubeconfig --show > ~/kubeconfig", "keep a copy; everybody who can read it controls the cluster"),
)


def main(words: Sequence[str]) -> None:
    arguments = parser().read(words)
    place = kubeconfig.there(Mooring.of_this_job(os.environ).places)
    print(place.read_text().rstrip("\n") if arguments.show else place)


def parser() -> Parser:
    made = Parser(prog="moorage kubeconfig", manual=Manual(ABOUT, IN_A_JOB, EXAMPLES))
    made.add_argument("--show", action="store_true", help="print the content; it gives full access to the cluster")
    return made
