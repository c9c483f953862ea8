"""Small files of root's, in directories that only root can write."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(path: Path, content: str, mode: int = 0o644) -> None:
    """A new file; never one that was there, nor one behind a link."""
    with os.fdopen(os.open(path, _NEW, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
        # Whatever the umask was.
        os.fchmod(file.fileno(), mode)


def append(path: Path, content: str) -> None:
    """In one piece, beside whoever else does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)


def replace(path: Path, content: str, mode: int = 0o600) -> None:
    """The file's new content, or after a crash its old one, but never a part of either."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.unlink(missing_ok=True)
    try:
        create(half, content, mode)
        half.rename(path)
    finally:
        with suppress(FileNotFoundError):
            half.unlink()


def private(path: Path, most: int = 1 << 20) -> str:
    """The content of a file that nobody but root and ourselves can have written; a PermissionError if others could."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid())
        if not ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{path} is not ours alone to write")
        return file.read(most).decode(errors="replace")
