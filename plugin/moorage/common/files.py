"""Small files of root, in directories that only root can write."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(path: Path, content: str, mode: int = 0o644) -> None:
    """Create the file; an error if there is one already, or a link."""
    with os.fdopen(os.open(path, _NEW, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
        # Independent of the umask.
        os.fchmod(file.fileno(), mode)


def append(path: Path, content: str) -> None:
    """Append in one write: several processes may do so."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)


def replace(path: Path, content: str, mode: int = 0o600) -> None:
    """Replace the content. After a crash the file has the new content or the old one, never a part."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.unlink(missing_ok=True)
    try:
        create(half, content, mode)
        half.rename(path)
    finally:
        with suppress(FileNotFoundError):
            half.unlink()


def private(path: Path, most: int = 1 << 20) -> str:
    """The content of the file; a PermissionError if another user than root and this one can write it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid())
        if not ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{path} is not ours alone to write")
        return file.read(most).decode(errors="replace")
