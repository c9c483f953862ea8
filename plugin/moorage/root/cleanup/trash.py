"""The trash: files of ended jobs wait here for their removal, beside the scratch they come from, for root alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from moorage.common import files, job
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, reported
from moorage.linux import quota
from moorage.linux.beneath import opened, unmounting
from moorage.root import journal, lock
from moorage.root.cleanup.remove_tree import Kept, remove

NAME: Final = ".moorage-trash"
# This unit empties the trash when an Epilog has no more time.
UNIT: Final = "moorage-trash.service"
UNIT_TIMEOUT: Final = 24 * 3600.0
# The unit waits so long for an Epilog that has left the rest to it, and still holds the lock.
EPILOG_TIMEOUT: Final = 60.0


def make(place: Path) -> None:
    """Make the trash before there is anything for it: later the disk may be full."""
    with _trash(place, make=True):
        pass


def put(source: Path) -> str | None:
    """Move a job's scratch into the trash, where no path leads its owner to it; its name there."""
    entry = f"{source.name}.{os.urandom(8).hex()}"
    with _trash(source.parent, make=True) as (place, trash):
        quota.open_to_all(trash)
        try:
            unmounting(place, source.name, lambda: os.rename(source.name, entry, src_dir_fd=place, dst_dir_fd=trash))
        except FileNotFoundError:
            return None
    return entry


def remove_entry(place: Path, entry: str, deadline: Deadline) -> Kept:
    """Remove one entry of the trash in this scratch directory. The result has a reason for each name that is left."""
    with _trash(place) as (_, trash):
        return remove(trash, entry, deadline)


def empty(place: Path, deadline: Deadline) -> Kept:
    """Remove everything in the trash of this scratch directory, also what comes meanwhile; as `remove_entry`."""
    kept: Kept = {}
    tried: set[str] = set()
    with suppress(FileNotFoundError), _trash(place) as (_, trash):
        while fresh := set(os.listdir(trash)) - tried:  # noqa: PTH208 - a descriptor is no path
            for entry in fresh:
                left = remove(trash, entry, deadline)
                kept |= left
                if not left:
                    _remove_limits(place, entry)
            tried |= fresh
    return kept


def _remove_limits(place: Path, entry: str) -> None:
    """Remove the disk limits of the job whose scratch this was, unless the job is here once more."""
    name = entry.partition(".")[0]
    if name.isdigit() and quota.enforced(place):
        number = int(name)
        with suppress(lock.Busy), lock.locked(number, EPILOG_TIMEOUT) as held:
            if not job.state_file(number).exists():
                quota.remove_limits(place, quota.project_of(number))
                held.remove()


def note(place: Path) -> None:
    """Note for the unit that this scratch directory has a trash: the configuration may name another one by then."""
    try:
        if place not in noted():
            files.append(_notes(), f"{place}\n")
    except OSError as error:
        # The disk may be full. The note is needed only if the configuration changes.
        journal.log(f"{_notes()}: {error}", phase="trash", priority=journal.WARNING)


def noted() -> list[Path]:
    """The scratch directories that were noted."""
    try:
        return [Path(line) for line in files.private(_notes()).splitlines()]
    except FileNotFoundError:
        return []


def _notes() -> Path:
    return job.STATE.with_name("trash")


@contextmanager
def _trash(place: Path, *, make: bool = False) -> Iterator[tuple[int, int]]:
    """Descriptors of a scratch directory and of the trash in it."""
    with opened(place) as parent:
        _only_root_writes(parent, place)
        if make:
            with suppress(FileExistsError):
                os.mkdir(NAME, 0o700, dir_fd=parent)
        with opened(place / NAME) as trash:
            _only_root_writes(trash, place / NAME)
            yield parent, trash


def _only_root_writes(descriptor: int, place: Path) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise MoorageError(f"{place} can be written by others than root: chown root: {place}; chmod go-w {place}")


def main() -> None:
    """Empty the trash of this node, however long that takes."""
    # Imported here: the Epilog imports this module, and has no time for the configuration.
    from moorage.node.config.load import load

    deadline = Deadline(UNIT_TIMEOUT)
    with reported("moorage-trash"):
        for place in {load().scratch.path, *noted()}:
            for name, reason in _emptied(place, deadline).items():
                journal.log(f"{name} cannot be removed: {reason}", phase="trash", priority=journal.ERROR)


def _emptied(place: Path, deadline: Deadline) -> Kept:
    try:
        return empty(place, deadline)
    except (MoorageError, OSError) as error:
        return {str(place / NAME): str(error)}


if __name__ == "__main__":
    main()
