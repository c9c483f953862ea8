"""moorage kubeconfig: the way to this job's cluster."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from moorage.common.description import Mooring
from moorage.user.cluster import kubeconfig


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="moorage kubeconfig", description="Print where the kubeconfig of this job's cluster is."
    )
    parser.add_argument("--show", action="store_true", help="print its content: whoever has that has the cluster")
    arguments = parser.parse_args(words)
    place = kubeconfig.there(Mooring.of_this_job(os.environ).places)
    print(place.read_text().rstrip("\n") if arguments.show else place)
