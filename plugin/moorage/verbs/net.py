"""moorage net: how the containers of jobs reach the outside from this node."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from moorage import checks, config, uplink
from moorage.facts import remembered
from moorage.spec import UPLINKS


def main(words: Sequence[str]) -> None:
    arguments = parser().parse_args(words)
    settings = config.load()
    with remembered() as facts:
        around = checks.look_around(settings, facts, os.environ)
    print(uplink.explain(around.offer, settings.uplink, arguments.uplink))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="moorage net", description="How containers reach the outside from this node.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    explain = verbs.add_parser("explain", help="say which driver jobs get on this node, and why")
    explain.add_argument("--uplink", choices=UPLINKS, help="as if a job asked for this one")
    return parser
