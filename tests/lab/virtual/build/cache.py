"""Built things kept outside the tree, each named by the content it was built from."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(os.environ.get("MOORAGE_CACHE") or "/var/cache/moorage")

# Of each thing so many versions are kept, those that were used last: two suites, and a day's work.
KEPT = 5

Input = str | bytes | Path


def cached(name: str, inputs: Iterable[Input], build: Callable[[Path], None], *, renew: bool = False) -> Path:
    """The directory that `build` fills, made when these inputs have not been seen before, or when told to `renew` it.

    An interrupted build leaves only a `.part`, which the next build throws away; a failed renewal leaves the old one.
    """
    place = CACHE / f"{name}-{digest(inputs)[:16]}"
    if place.exists() and not renew:
        os.utime(place)
        return place
    with locked(name):
        if place.exists() and not renew:
            return place
        for abandoned in CACHE.glob(f"{name}-{'[0-9a-f]' * 16}.part"):
            shutil.rmtree(abandoned)
        part = place.with_name(place.name + ".part")
        part.mkdir()
        build(part)
        shutil.rmtree(place, ignore_errors=True)
        part.rename(place)
        os.utime(place)
        _forget_all_but_the_last(name)
    return place


def _forget_all_but_the_last(name: str) -> None:
    versions = sorted(CACHE.glob(f"{name}-{'[0-9a-f]' * 16}"), key=lambda place: place.stat().st_mtime)
    for old in versions[:-KEPT]:
        shutil.rmtree(old)
        old.with_name(old.name + ".log").unlink(missing_ok=True)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep a second process from making the same thing at the same time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest(inputs: Iterable[Input]) -> str:
    """One name for all inputs: text and bytes as they are, paths by what they hold."""
    whole = hashlib.sha256()
    for item in inputs:
        whole.update(_fingerprint(item))
    return whole.hexdigest()


def _fingerprint(item: Input) -> bytes:
    if isinstance(item, Path):
        return hashlib.sha256(b"".join(_contents(item))).digest()
    data = item.encode() if isinstance(item, str) else item
    return hashlib.sha256(data).digest()


def _contents(path: Path) -> Iterator[bytes]:
    if path.is_dir():
        for child in sorted(path.rglob("*")):
            if child.is_file() and "__pycache__" not in child.parts:
                yield str(child.relative_to(path)).encode() + b"\0"
                yield from _contents(child)
    else:
        yield oct(path.stat().st_mode & 0o111).encode()
        yield hashlib.sha256(path.read_bytes()).digest()
