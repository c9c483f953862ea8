"""`moorage config`: every setting, its value, and the line it comes from."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from moorage.cli import output
from moorage.cli.manual import DONE, ON_A_NODE, WRONG_WORDS, Manual, Parser
from moorage.common.errors import FAILED, UserError
from moorage.node import features
from moorage.node.config.load import PLACE, examine
from moorage.node.config.schema import Config
from moorage.node.config.values import shown_size
from moorage.node.features import Feature

EXAMPLES: Final = (
    ("moorage config show", "print the configuration that jobs on this node get"),
    ("moorage config show ./moorage.yaml", "check a file before you install it"),
    ("moorage config show | grep ^uplink", "print the settings of one section"),
)
SHOW: Final = Manual(
    """\
Print every setting, its value, and the line it comes from. Errors in the file follow on standard error.

Without FILE it reads the configuration of this node. A node without one has all defaults.""",
    examples=EXAMPLES,
    codes=(DONE, (FAILED, "a setting is wrong, or FILE cannot be read"), WRONG_WORDS),
)


def main(words: Sequence[str]) -> int:
    arguments = parser().read(words or ["show"])
    config, faults = examine(_there(arguments.file))
    there, wrong = features.examine((arguments.file or PLACE).parent / features.DIRECTORY)
    faults = [*faults, *wrong]
    print(as_json(config, there) if arguments.json else as_yaml(config, there))
    for fault in faults:
        print(f"moorage: {fault.line}", file=sys.stderr)
    return FAILED if faults else 0


def parser() -> Parser:
    made = Parser(prog="moorage config", manual=Manual("Show the configuration of this node.", ON_A_NODE, EXAMPLES))
    show = made.verb("show", "print every setting, its value, and the line it comes from", SHOW)
    show.add_argument("file", metavar="FILE", nargs="?", type=Path, help=f"read this file instead of {PLACE}")
    show.add_argument("--json", action="store_true", help="print {schema, settings: {NAME: {value, source}}}")
    return made


def _there(file: Path | None) -> Path:
    """The file that is asked for. A node may be without its own; a file that somebody names must be there."""
    if file and not file.exists():
        raise UserError(f"there is no file {file}", "name a configuration file", code="M-COMMAND-5")
    return file or PLACE


def as_yaml(config: Config, there: Sequence[Feature] = ()) -> str:
    return "\n".join(f"{name}: {_shown(name, value)}  # {source}" for name, value, source in _all(config, there))


def as_json(config: Config, there: Sequence[Feature] = ()) -> str:
    shown = {name: {"value": _plain(value), "source": source} for name, value, source in _all(config, there)}
    return output.as_json(settings=shown)


def _all(config: Config, there: Sequence[Feature]) -> Iterator[tuple[str, object, str]]:
    """Full name, value and source of each setting; of a feature, only what its file sets."""
    for name, value in config.values():
        yield name, value, config.source(name)
    for feature in there:
        for name, value, source in feature.values():
            yield f"features.{feature.name}.{name}", value, source


def _plain(value: object) -> object:
    return str(value) if isinstance(value, os.PathLike) else value


def _shown(name: str, value: object) -> str:
    """The value as it could stand in the file."""
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
