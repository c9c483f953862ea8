"""Changes to a node, each of which breaks one thing: a change holds as long as its block, and is undone after it.

Guests run this as root with nothing but Python. It shares no code with the product, which it breaks.
"""

import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

# What a change adds to a hook's environment, and the command by which the hook is started.
Twist = tuple[dict[str, str], list[str]]
Change = AbstractContextManager[Twist]
PLAIN: Twist = ({}, [])
CAPABILITY = "security.capability"


@contextmanager
def nothing() -> Iterator[Twist]:
    yield PLAIN


@contextmanager
def told(**more: str) -> Iterator[Twist]:
    """The hook has these variables, too."""
    yield more, []


@contextmanager
def through(*argv: str) -> Iterator[Twist]:
    """This command starts the hook."""
    yield {}, [*argv]


@contextmanager
def both(*changes: Change) -> Iterator[Twist]:
    environment: dict[str, str] = {}
    prefix: list[str] = []
    with ExitStack() as stack:
        for change in changes:
            more, argv = stack.enter_context(change)
            environment |= more
            prefix += argv
        yield environment, prefix


@contextmanager
def away(*paths: Path) -> Iterator[Twist]:
    """The paths do not exist, and no pattern finds where they are instead."""
    missing = [str(path) for path in paths if not os.path.lexists(path)]
    if missing:
        raise FileNotFoundError(f"not there to be taken away: {missing}")
    for path in paths:
        _aside(path).parent.mkdir(exist_ok=True)
        path.rename(_aside(path))
    try:
        yield PLAIN
    finally:
        for path in paths:
            _aside(path).rename(path)
        for parent in {_aside(path).parent for path in paths}:
            # Another change may still keep something in there.
            with suppress(OSError):
                parent.rmdir()


def _aside(path: Path) -> Path:
    """On the same file system."""
    return path.parent / ".away" / path.name


@contextmanager
def replaced(path: Path) -> Iterator[Twist]:
    """Whatever is at the path is away; the block may put something there, which is removed after it."""
    with away(*([path] if os.path.lexists(path) else [])) as twist:
        try:
            yield twist
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def instead(path: Path, text: str | Callable[[bytes], bytes], mode: int = 0o644) -> Iterator[Twist]:
    """Another file in the place of this one: a text, or the result of a function on the old content."""
    old = path.read_bytes() if path.is_file() else b""
    new = text.encode() if isinstance(text, str) else text(old)
    with replaced(path) as twist:
        path.write_bytes(new)
        path.chmod(mode)
        yield twist


def edited(path: Path, pattern: str, new: str) -> Change:
    def edit(old: bytes) -> bytes:
        text, count = re.subn(pattern, new, old.decode(), flags=re.MULTILINE)
        if not count:
            raise ValueError(f"{path} has nothing like {pattern}")
        return text.encode()

    return instead(path, edit)


def patched(path: Path, pattern: bytes, new: bytes) -> Change:
    return instead(path, lambda old: re.sub(pattern, new, old), mode=0o755)


def printing(path: Path, text: str) -> Change:
    """A program that prints this, whatever it is asked."""
    return instead(path, f"#!/bin/sh\nprintf '%s\\n' {shlex.quote(text)}\n", mode=0o755)


def setting(path: Path, text: str) -> Change:
    """A configuration with this setting instead of the one of the same name."""
    return instead(path, lambda old: changed(old, text))


def changed(settings: bytes, text: str) -> bytes:
    name = text.partition(":")[0]
    without = re.sub(rf"^{re.escape(name)}:.*\n(?:[ \t].*\n)*", "", settings.decode(), flags=re.MULTILINE)
    return f"{without}\n{text}\n".encode()


@contextmanager
def linked(path: Path, target: str) -> Iterator[Twist]:
    with replaced(path) as twist:
        path.symlink_to(target)
        yield twist


@contextmanager
def planted(path: Path, text: str = "") -> Iterator[Twist]:
    """A file where there was none, with the directories above it."""
    missing = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    try:
        yield PLAIN
    finally:
        path.unlink()
        # A look at a job locks it.
        path.with_suffix(".lock").unlink(missing_ok=True)
        for parent in missing:
            parent.rmdir()


@contextmanager
def mode(path: Path, bits: int) -> Iterator[Twist]:
    before = stat.S_IMODE(path.stat().st_mode)
    capability = os.getxattr(path, CAPABILITY) if CAPABILITY in os.listxattr(path) else b""
    path.chmod(bits)
    if capability:
        os.removexattr(path, CAPABILITY)
    try:
        yield PLAIN
    finally:
        path.chmod(before)
        if capability:
            os.setxattr(path, CAPABILITY, capability)


@contextmanager
def written(path: Path, text: str) -> Iterator[Twist]:
    """Another value in a file that cannot be replaced, like those in /proc."""
    before = path.read_text()
    path.write_text(text)
    try:
        yield PLAIN
    finally:
        path.write_text(before)


@contextmanager
def covered(path: Path, kind: str, options: str, **files: str) -> Iterator[Twist]:
    """Another file system over this directory, with these files; an underscore stands for a dot in their names."""
    run("mount", "-t", kind, "-o", options, kind, str(path))
    try:
        for name, text in files.items():
            (path / name.replace("_", ".")).write_text(text)
        yield PLAIN
    finally:
        # A process that has come upon it meanwhile must not keep the node broken.
        run("umount", "--lazy", str(path))


@contextmanager
def attribute(name: str, value: object) -> Iterator[Twist]:
    """Another value of this name in a module of this process, for tests that run the product's code themselves."""
    # Loading it takes seconds in an emulated guest, where nobody needs it.
    from unittest import mock

    with mock.patch(name, value):
        yield PLAIN


def undone_when_stopped() -> None:
    """Undo all changes also when a signal ends this program."""
    for stopping in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(stopping, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
