"""Dataclasses as JSON objects: one declaration writes them and reads them.

A reader ignores keys that it does not know: a newer release may add some. A missing key is an error, whatever default
the dataclass has: defaults are for whoever makes such a value, not for whoever reads one.
"""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_KEY: Final = "key"
_OUTSIDE: Final = "outside"


def key(name: str) -> dict[str, str]:
    """Metadata of a field that JSON has under another name."""
    return {_KEY: name}


def outside() -> dict[str, bool]:
    """Metadata of a field that JSON does not have: the reader gives it."""
    return {_OUTSIDE: True}


def encode(value: Any) -> Any:  # noqa: ANN401
    """The value as `json` takes it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {_key(one): encode(getattr(value, one.name)) for one in fields(value) if _OUTSIDE not in one.metadata}
    if isinstance(value, dict):
        return {name: encode(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def decode(kind: type[T], content: object, name: str = "", **given: object) -> T:
    """The object of this kind; a ValueError that names the field which is missing or not what it should be.

    `given` are the fields that JSON does not have.
    """
    if not isinstance(content, dict):
        raise _wrong(name, "an object", content)
    hints = _hints(kind)  # type: ignore[arg-type]
    found = dict(given)
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name not in given:
            found[one.name] = _field(one, hints[one.name], content, f"{name}." if name else "")
    return kind(**found)


def _field(declared: Field[Any], kind: Any, content: dict[str, object], prefix: str) -> object:  # noqa: ANN401
    if _key(declared) not in content:
        raise ValueError(f"{prefix}{_key(declared)} is missing")
    return _value(kind, content[_key(declared)], prefix + _key(declared))


def _value(kind: Any, value: Any, name: str) -> object:  # noqa: ANN401
    """`value` as a value of this type."""
    if is_dataclass(kind) and isinstance(kind, type):
        return decode(kind, value, name)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _optional(next(one for one in arguments if one is not NoneType), value, name)
    if origin is Literal:
        if value not in arguments:
            raise _wrong(name, " or ".join(map(repr, arguments)), value)
        return value
    if origin is tuple:
        return _tuple(arguments, value, name)
    if origin is dict:
        return {one: _value(arguments[1], this, f"{name}.{one}") for one, this in _typed(dict, value, name).items()}
    if kind is float:
        return float(value) if type(value) is int else _typed(float, value, name)
    return Path(_typed(str, value, name)) if kind is Path else _typed(kind, value, name)


def _optional(kind: Any, value: Any, name: str) -> object:  # noqa: ANN401
    # Before descriptions had a number, "" stood for no program.
    return None if value is None or (kind is Path and value == "") else _value(kind, value, name)


def _tuple(kinds: tuple[Any, ...], value: object, name: str) -> tuple[object, ...]:
    items = _typed(list, value, name)
    each = kinds[:1] * len(items) if kinds[-1] is Ellipsis else kinds
    if len(each) != len(items):
        raise _wrong(name, f"a list of {len(each)}", value)
    return tuple(_value(kind, one, f"{name}[{at}]") for at, (kind, one) in enumerate(zip(each, items, strict=True)))


def _typed(kind: type[T], value: object, name: str) -> T:
    # To Python, true is a number.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(name, f"of type {kind.__name__}", value)
    return value


def _wrong(name: str, wanted: str, value: object) -> ValueError:
    return ValueError(f"{name or 'the file'} is {str(value)[:80]!r} and not {wanted}")


def _key(declared: Field[Any]) -> str:
    name: str = declared.metadata.get(_KEY, declared.name)
    return name


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)
