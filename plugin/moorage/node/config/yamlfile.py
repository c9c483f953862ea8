"""A configuration file in YAML, read with the line of each value."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from moorage.common.errors import UserError
from moorage.node.config.values import Entry

MOST_BYTES: Final = 1 << 18
# The deepest nesting of sections.
DEEPEST: Final = 3
_SCALARS: Final = ("str", "int", "float", "bool", "null")


def entries(path: Path) -> list[Entry]:
    """Every value in the file, in its order."""
    try:
        document = yaml.compose(text(path), Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        _refuse(
            path,
            mark.line + 1 if mark else 1,
            "this is not YAML",
            getattr(error, "problem", None) or "correct it",
            code="M-CONFIG-4",
        )
    if document is None or document.tag.endswith(":null"):
        return []
    return list(_walk(path, document, "", DEEPEST))


def text(path: Path) -> str:
    """The text of a file that nobody but root can have written."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UserError(
                f"{path} can be written by others than root", f"chown root: {path}; chmod 644 {path}", code="M-CONFIG-5"
            )
        read = file.read(MOST_BYTES + 1)
    if len(read) > MOST_BYTES:
        _refuse(path, 1, "the file is too long", f"keep it below {MOST_BYTES >> 10} KiB", code="M-CONFIG-6")
    return read.decode(errors="replace")


def _walk(path: Path, node: yaml.Node, prefix: str, depth: int) -> Iterator[Entry]:
    if not isinstance(node, yaml.MappingNode) or not depth:
        _refuse(
            path,
            _line(node),
            f"{prefix.rstrip('.') or 'the file'} is not a section",
            "write keys as NAME: VALUE",
            code="M-CONFIG-7",
        )
    seen: set[str] = set()
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else ""
        if not name or name in seen:
            _refuse(
                path,
                _line(key),
                f"{prefix}{name or 'this key'} cannot stand here",
                "name each key once",
                code="M-CONFIG-8",
            )
        seen.add(name)
        if isinstance(value, yaml.MappingNode):
            yield from _walk(path, value, f"{prefix}{name}.", depth - 1)
        else:
            yield Entry(prefix + name, _value(path, value), _line(key))


def _value(path: Path, node: yaml.Node) -> Any:  # noqa: ANN401
    if isinstance(node, yaml.SequenceNode):
        return [_scalar(path, item) for item in node.value]
    return _scalar(path, node)


def _scalar(path: Path, node: yaml.Node) -> Any:  # noqa: ANN401
    if not isinstance(node, yaml.ScalarNode) or node.tag.rpartition(":")[2] not in _SCALARS:
        _refuse(path, _line(node), "this is not a value of any key", "write a plain word or number", code="M-CONFIG-9")
    return yaml.constructor.SafeConstructor().construct_object(node)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _refuse(path: Path, line: int, what: str, remedy: str, *, code: str = "") -> NoReturn:
    raise UserError(f"{path}:{line}: {what}", remedy, code=code)
