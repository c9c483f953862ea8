"""moorage config: every setting, its value, and where that comes from."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from moorage.config import PLACE, Config, examine
from moorage.errors import FAILED
from moorage.settings import shown_size


def main(words: Sequence[str]) -> int:
    # `show` is all there is to do so far.
    arguments = parser().parse_args(words or ["show"])
    config, faults = examine(arguments.file)
    print(as_json(config) if arguments.json else as_yaml(config))
    for fault in faults:
        print(f"moorage: {fault}", file=sys.stderr)
    return FAILED if faults else 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="moorage config", description="What the site has set on this node.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    what = "print every setting, its value and where that comes from"
    show = verbs.add_parser("show", help=what, description=f"{what.capitalize()}. Ends with 1 if any is wrong.")
    show.add_argument("file", nargs="?", type=Path, default=PLACE, help="look at this file instead of %(default)s")
    show.add_argument("--json", action="store_true", help="print an object of {NAME: {value, source}}")
    return parser


def as_yaml(config: Config) -> str:
    return "\n".join(f"{name}: {_shown(name, value)}  # {config.source(name)}" for name, value in config.values())


def as_json(config: Config) -> str:
    shown = {name: {"value": _plain(value), "source": config.source(name)} for name, value in config.values()}
    return json.dumps(shown, indent=1)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, os.PathLike) else value


def _shown(name: str, value: object) -> str:
    """As it could stand in the file."""
    match value:
        case None:
            return "null"
        case tuple():
            return f"[{', '.join(value)}]"
        case int() if name.endswith((".size", "memory", ".keep_free", ".reserve")):
            return shown_size(value)
        case float():
            return f"{value:g}"
        case _:
            return str(value)
