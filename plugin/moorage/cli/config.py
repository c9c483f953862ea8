"""moorage config: every setting, its value, and where that comes from."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from moorage.common.errors import FAILED
from moorage.node import features
from moorage.node.config.load import PLACE, examine
from moorage.node.config.schema import Config
from moorage.node.config.values import shown_size
from moorage.node.features import Feature


def main(words: Sequence[str]) -> int:
    # `show` is all there is to do so far.
    arguments = parser().parse_args(words or ["show"])
    config, faults = examine(arguments.file)
    there, wrong = features.examine(arguments.file.parent / features.DIRECTORY)
    faults = [*faults, *wrong]
    print(as_json(config, there) if arguments.json else as_yaml(config, there))
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


def as_yaml(config: Config, there: Sequence[Feature] = ()) -> str:
    return "\n".join(f"{name}: {_shown(name, value)}  # {source}" for name, value, source in _all(config, there))


def as_json(config: Config, there: Sequence[Feature] = ()) -> str:
    shown = {name: {"value": _plain(value), "source": source} for name, value, source in _all(config, there)}
    return json.dumps(shown, indent=1)


def _all(config: Config, there: Sequence[Feature]) -> Iterator[tuple[str, object, str]]:
    """Each by its full name, and where it comes from; of features what their files set."""
    for name, value in config.values():
        yield name, value, config.source(name)
    for feature in there:
        for name, value, source in feature.values():
            yield f"features.{feature.name}.{name}", value, source


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
        case str() if "{" in value:
            return json.dumps(value)
        case float():
            return f"{value:g}"
        case _:
            return str(value)
