"""Facts about this node, kept until a file that they depend on changes or the node boots.

To start a dozen programs for their versions would take longer than all the rest of a Prolog.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from moorage import __version__
from moorage.common.files import private, replace
from moorage.common.job import RUN

PLACE: Final = RUN / "facts.json"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

T = TypeVar("T")
Stamp = list[int | str]


class Facts:
    """Facts by name, each with the stamp of the files that it depends on."""

    def __init__(self, known: dict[str, Any] | None = None) -> None:
        self.known = known or {}
        self.changed = False

    def recall(self, name: str, stamp: Stamp, find: Callable[[], T]) -> T:
        """The fact, a JSON value: the known one if the stamp fits, else the result of `find`."""
        fact = self.known.get(name)
        if not isinstance(fact, dict) or fact.get("stamp") != stamp or "value" not in fact:
            fact = self.known[name] = {"stamp": stamp, "value": find()}
            self.changed = True
        value: T = fact["value"]
        return value


def stamp(*paths: Path) -> Stamp:
    """A value that changes when one of the files is changed, replaced or removed."""
    return [part for path in paths for part in _stamp(path)]


def _stamp(path: Path) -> Iterator[int | str]:
    yield str(path)
    with suppress(OSError):
        status = path.stat()
        yield from (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@contextmanager
def remembered(path: Path | None = None, *, anew: bool = False) -> Iterator[Facts]:
    """The facts of this boot. Root saves new ones for the next job; another user does not."""
    path = path or PLACE
    # Another release may understand a fact differently.
    valid = f"{BOOT_ID.read_text().strip()} {__version__}"
    facts = Facts({} if anew else _read(path, valid))
    try:
        yield facts
    finally:
        if facts.changed:
            # Several Prologs may write at once. The last one wins; the others' facts are found again.
            with suppress(OSError):
                replace(path, json.dumps({"valid": valid, "facts": facts.known}))


def _read(path: Path, valid: str) -> dict[str, Any]:
    """The facts in the file; none if it is damaged, not root's, or of another boot or release."""
    with suppress(OSError, ValueError):
        match json.loads(private(path)):
            case {"valid": written, "facts": dict(facts)} if written == valid:
                return facts
    return {}
