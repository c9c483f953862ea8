"""Ways to break one thing of a node: each holds as long as its block, and everything is put right again after it.

For use in a guest as root; shares no code with what is broken.
"""

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType

# What a breakage adds to the hook's environment, and the command that it is started by.
Twist = tuple[dict[str, str], list[str]]
Breakage = Callable[[], AbstractContextManager[Twist]]
PLAIN: Twist = ({}, [])


@contextmanager
def sound() -> Iterator[Twist]:
    yield PLAIN


def told(**more: str) -> Breakage:
    @contextmanager
    def broken() -> Iterator[Twist]:
        yield more, []

    return broken


def through(*argv: str) -> Breakage:
    @contextmanager
    def broken() -> Iterator[Twist]:
        yield {}, [*argv]

    return broken


def away(*paths: Path | str) -> Breakage:
    """These are not there, and no pattern finds where they are instead."""

    @contextmanager
    def broken() -> Iterator[Twist]:
        places = [Path(path) for path in paths if os.path.lexists(path)]
        if len(places) < len(paths):
            raise FileNotFoundError(f"not there to be taken away: {sorted({*map(Path, paths)} - {*places})}")
        for place in places:
            _aside(place).parent.mkdir(exist_ok=True)
            place.rename(_aside(place))
        try:
            yield PLAIN
        finally:
            for place in places:
                _aside(place).rename(place)
            for parent in {_aside(place).parent for place in places}:
                # Another breakage may still have something in there.
                with suppress(OSError):
                    parent.rmdir()

    return broken


def _aside(place: Path) -> Path:
    """On the same file system."""
    return place.parent / ".away" / place.name


def instead(path: Path | str, text: str | Callable[[bytes], bytes], mode: int = 0o644) -> Breakage:
    """Another file in the place of this one, if there is one: a text, or what a function makes of the old one."""

    @contextmanager
    def broken() -> Iterator[Twist]:
        place = Path(path)
        old = place.read_bytes() if place.is_file() else b""
        with away(*([place] if place.exists() else []))() as twist:
            place.write_bytes(text.encode() if isinstance(text, str) else text(old))
            place.chmod(mode)
            try:
                yield twist
            finally:
                place.unlink()

    return broken


def edited(path: Path | str, pattern: str, new: str) -> Breakage:
    def edit(old: bytes) -> bytes:
        text, count = re.subn(pattern, new, old.decode(), flags=re.MULTILINE)
        if not count:
            raise ValueError(f"{path} has nothing like {pattern}")
        return text.encode()

    return instead(path, edit)


def patched(path: Path | str, pattern: bytes, new: bytes) -> Breakage:
    return instead(path, lambda old: re.sub(pattern, new, old), mode=0o755)


def saying(path: Path | str, line: str) -> Breakage:
    """A program that says this of its version."""
    return instead(path, f"#!/bin/sh\necho {line!r}\n", mode=0o755)


def setting(path: Path | str, text: str, mode: int = 0o644) -> Breakage:
    """A file of settings with this one instead of what it has under the same name."""
    return instead(path, lambda old: changed(old, text), mode)


def changed(settings: bytes, text: str) -> bytes:
    name = text.partition(":")[0]
    without = re.sub(rf"^{re.escape(name)}:.*\n(?:[ \t].*\n)*", "", settings.decode(), flags=re.MULTILINE)
    return f"{without}\n{text}\n".encode()


def mode(path: Path | str, bits: int) -> Breakage:
    @contextmanager
    def broken() -> Iterator[Twist]:
        place = Path(path)
        before = stat.S_IMODE(place.stat().st_mode)
        capability = _capability(place)
        place.chmod(bits)
        if capability:
            os.removexattr(place, "security.capability")
        try:
            yield PLAIN
        finally:
            place.chmod(before)
            if capability:
                os.setxattr(place, "security.capability", capability)

    return broken


def _capability(place: Path) -> bytes:
    try:
        return os.getxattr(place, "security.capability")
    except OSError:
        return b""


def sysctl(name: str, value: str) -> Breakage:
    @contextmanager
    def broken() -> Iterator[Twist]:
        place = Path("/proc/sys") / name
        before = place.read_text()
        place.write_text(value)
        try:
            yield PLAIN
        finally:
            place.write_text(before)

    return broken


def covered(place: Path | str, kind: str, options: str, **files: str) -> Breakage:
    """Another file system over this directory, with these files; an underscore stands for a dot in their names."""

    @contextmanager
    def broken() -> Iterator[Twist]:
        run("mount", "-t", kind, "-o", options, kind, str(place))
        try:
            for name, text in files.items():
                (Path(place) / name.replace("_", ".")).write_text(text)
            yield PLAIN
        finally:
            # Whoever has come upon it meanwhile must not keep the node broken.
            run("umount", "--lazy", str(place))

    return broken


def unloaded(module: str) -> Breakage:
    @contextmanager
    def broken() -> Iterator[Twist]:
        run("modprobe", "--remove", module)
        try:
            yield PLAIN
        finally:
            run("modprobe", module)

    return broken


def both(*breakages: Breakage) -> Breakage:
    @contextmanager
    def broken() -> Iterator[Twist]:
        if not breakages:
            yield PLAIN
            return
        with breakages[0]() as first, both(*breakages[1:])() as rest:
            yield {**first[0], **rest[0]}, [*first[1], *rest[1]]

    return broken


def undone_when_stopped() -> None:
    """Whoever ends this program wants the node as it was all the same."""
    for stopping in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(stopping, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
