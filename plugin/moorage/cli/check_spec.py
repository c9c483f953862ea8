"""`moorage check-spec SPEC`: what the shim asks when a job is submitted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from moorage.common.spec import parse


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="moorage check-spec", description="Say what is wrong with SPEC.")
    parser.add_argument("spec", metavar="SPEC", help="what follows --k8s=")
    parse(parser.parse_args(words).spec)
