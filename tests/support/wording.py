"""All that the product may say, with an ellipsis for what is filled in: documents quote it like that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ELLIPSIS: Final = "…"
PLUGIN: Final = Path(__file__).parents[2] / "plugin"

_C_STRING: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_C_FILLED_IN: Final = re.compile(r"%[sdm]")


def wordings() -> set[str]:
    """Of the Python package and of the shim."""
    python = (one for source in PLUGIN.rglob("*.py") for one in of_python(source.read_text()))
    return {*python, *(one for source in PLUGIN.rglob("*.c") for one in of_c(source.read_text()))}


def of_python(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.JoinedStr():
                yield _joined(node)
            case ast.Constant(value=str(text)):
                yield text
            # An error's cause and remedy become one line.
            case ast.Call(args=[*_, what, remedy]):
                if (cause := _text(what)) and (cure := _text(remedy)):
                    yield f"{cause}: {cure}"


def of_c(source: str) -> Iterator[str]:
    for text in _C_STRING.findall(source):
        yield _C_FILLED_IN.sub(ELLIPSIS, text)


def _text(node: ast.expr) -> str:
    match node:
        case ast.JoinedStr():
            return _joined(node)
        case ast.Constant(value=str(text)):
            return text
        case _:
            return ""


def _joined(node: ast.JoinedStr) -> str:
    return "".join(_text(part) or ELLIPSIS for part in node.values)
