"""Vendors' descriptions of their devices (CDI, Container Device Interface): read from root's files, never run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from moorage.common.errors import UserError
from moorage.common.hardware import Bind, Hardware
from moorage.node.config import values
from moorage.node.factcache import Facts, stamp

# The second directory overrides the first.
DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
SUFFIXES: Final = (".json", ".yaml")
# Everything else, hooks above all, would need a runtime that root runs.
TAKEN: Final = frozenset({"deviceNodes", "mounts", "env"})


@dataclass(frozen=True)
class Device:
    """A device: its own part, and the part that all devices of its kind share."""

    own: Hardware
    common: Hardware

    @property
    def hardware(self) -> Hardware:
        return Hardware.joined([self.own, self.common])


def known(names: Iterable[str], facts: Facts) -> dict[str, Device]:
    """All devices of the same kinds as these names, by full name: VENDOR/CLASS=NAME."""
    kinds = {name.partition("=")[0] for name in names}
    found: dict[str, Device] = {}
    for path in _files() if kinds else ():
        found |= _devices(path, facts.recall(f"cdi {path}", stamp(path), partial(_parsed, path)), kinds)
    return found


def _files() -> Iterator[Path]:
    for directory in DIRECTORIES:
        if directory.is_dir():
            yield from sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)


def _parsed(path: Path) -> object:
    # Importing yaml takes longer than a hook may take.
    import yaml

    from moorage.node.config.yamlfile import text

    said = text(path)
    try:
        # Everything as text: names of devices often look like numbers.
        return json.loads(said) if path.suffix == ".json" else yaml.load(said, Loader=yaml.BaseLoader)  # noqa: S506
    except (ValueError, yaml.YAMLError):
        raise UserError(f"{path} is no {path.suffix[1:].upper()}", "make it anew", code="M-FEATURE-1") from None


def _devices(path: Path, spec: Any, kinds: Iterable[str]) -> dict[str, Device]:  # noqa: ANN401
    try:
        if (kind := spec["kind"]) not in kinds:
            return {}
        common = _hardware(spec.get("containerEdits") or {})
        return {f"{kind}={one['name']}": Device(_hardware(one["containerEdits"]), common) for one in spec["devices"]}
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a CDI description ({error!r})", "make it anew", code="M-FEATURE-2") from None
    except ValueError as error:
        raise UserError(f"{path} asks for things that jobs cannot have", str(error), code="M-FEATURE-3") from None


def _hardware(edits: Mapping[str, Any]) -> Hardware:
    if others := sorted(name for name in edits.keys() - TAKEN if edits[name]):
        raise ValueError(f"make it anew without {' and '.join(others)}")
    return Hardware(
        _checked(values.devices(""), [_node(one) for one in edits.get("deviceNodes") or ()]),
        tuple(map(Bind.parse, _checked(values.binds(), [_bind(one) for one in edits.get("mounts") or ()]))),
        _checked(values.assignments(), edits.get("env") or ()),
    )


def _checked(reader: values.Reader, given: Iterable[str]) -> tuple[str, ...]:
    """The values, if a file of the site could ask for them."""
    try:
        read: tuple[str, ...] = reader(list(dict.fromkeys(given)))
    except ValueError as error:
        raise ValueError(f"give {error}") from None
    return read


def _node(node: Mapping[str, str]) -> str:
    path = node["path"]
    if node.get("hostPath", path) != path:
        raise ValueError(f"{path} has to be called as on the node, {node['hostPath']}")
    return path


def _bind(mount: Mapping[str, Any]) -> str:
    writable = "" if "ro" in (mount.get("options") or ()) else ":rw"
    return f"{mount['hostPath']}:{mount['containerPath']}{writable}"
