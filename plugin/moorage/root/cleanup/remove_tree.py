"""Removes a tree that belonged to a user, whatever the user has built in it.

Nothing is reached by a path, no link is followed, no mount is entered, and no file is looked up by name. A directory
becomes root's alone before it is read, so that a process with a descriptor of it can change nothing there. Directories
in it move up to the top of the tree, so that none is ever deep, and no path ever long.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from moorage.common.deadline import Deadline
from moorage.linux import quota
from moorage.linux.beneath import entered, unmounting

MOST_NAMED: Final = 20
Kept = dict[str, str]


def remove(parent: int, name: str, deadline: Deadline) -> Kept:
    """Remove this entry of a directory that only root can write. The result has a reason for each name that is left.

    If the reason is the deadline, another call continues.
    """
    kept: Kept = {}
    try:
        if not _unlinked(parent, name):
            with entered(parent, name) as top:
                kept = _Tree(top, deadline).emptied()
            if not kept:
                _rmdir(parent, name)
    except OSError as error:
        _note(kept, name, error)
    return kept


class _Tree:
    """The top of a tree, which is emptied in rounds."""

    def __init__(self, top: int, deadline: Deadline) -> None:
        self.top = top
        self.deadline = deadline
        self.kept: Kept = {}
        self.changes = 0

    def emptied(self) -> Kept:
        """Do rounds until one changes nothing: nothing is left, or nothing more can be removed."""
        _take(self.top)
        quota.open_to_all(self.top)
        while True:
            self.kept, self.changes = {}, 0
            self._each(self.top, self._remove)
            if self.deadline.passed:
                return {**self.kept, "the rest": "there was no time left"}
            if not self.changes:
                return self.kept

    def _remove(self, name: str) -> None:
        """Remove an entry of the top. Directories in it move up beside it."""
        if not _unlinked(self.top, name):
            with entered(self.top, name) as directory:
                _take(directory)
                self._each(directory, lambda inner: self._remove_inner(directory, inner))
            _rmdir(self.top, name)
        self.changes += 1

    def _remove_inner(self, directory: int, name: str) -> None:
        if not _unlinked(directory, name):
            above = os.urandom(8).hex()
            unmounting(directory, name, lambda: os.rename(name, above, src_dir_fd=directory, dst_dir_fd=self.top))
        self.changes += 1

    def _each(self, directory: int, act: Callable[[str], None]) -> None:
        with os.scandir(directory) as entries:
            for entry in entries:
                if self.deadline.passed:
                    return
                try:
                    act(entry.name)
                except OSError as error:
                    _note(self.kept, entry.name, error)


def _take(directory: int) -> None:
    os.fchown(directory, 0, 0)
    os.fchmod(directory, 0o700)


def _unlinked(directory: int, name: str) -> bool:
    """Remove an entry unless it is a directory; whether it is gone."""
    try:
        unmounting(directory, name, lambda: os.unlink(name, dir_fd=directory))
    except IsADirectoryError:
        return False
    return True


def _rmdir(directory: int, name: str) -> None:
    unmounting(directory, name, lambda: os.rmdir(name, dir_fd=directory))


def _note(kept: Kept, name: str, error: OSError) -> None:
    # Another process may remove the same tree, and be faster.
    if not isinstance(error, FileNotFoundError) and len(kept) < MOST_NAMED:
        kept[ascii(name)[1:-1]] = error.strerror or str(error)
