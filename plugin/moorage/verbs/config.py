"""moorage config: every setting, its value, and where that comes from."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from moorage.config import PLACE, load
from moorage.settings import shown_size


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="moorage config", description="Print every setting and where it comes from.")
    parser.add_argument("file", nargs="?", type=Path, default=PLACE, help="look at this file instead of %(default)s")
    config = load(parser.parse_args(words).file)
    for name, value in config.values():
        print(f"{name}: {_shown(name, value)}  # {config.source(name)}")


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
