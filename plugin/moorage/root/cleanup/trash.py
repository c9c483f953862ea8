"""Where the files of ended jobs wait for their removal: beside the scratch they come from, and for root alone."""

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
# What empties it when an Epilog has no more time.
UNIT: Final = "moorage-trash.service"
PATIENCE: Final = 24 * 3600.0
# For an Epilog that has left the rest to the unit, and is not done yet.
ENDING: Final = 60.0


def make(place: Path) -> None:
    """Before there is anything to be taken: then the disk may be full."""
    with _trash(place, make=True):
        pass


def take(source: Path) -> str | None:
    """Move a job's scratch into the trash, where its owner cannot get at it by any path; what it is called there."""
    entry = f"{source.name}.{os.urandom(8).hex()}"
    with _trash(source.parent, make=True) as (place, trash):
        quota.open_to_all(trash)
        try:
            unmounting(place, source.name, lambda: os.rename(source.name, entry, src_dir_fd=place, dst_dir_fd=trash))
        except FileNotFoundError:
            return None
    return entry


def discard(place: Path, entry: str, deadline: Deadline) -> Kept:
    """Remove one entry of the trash in this scratch directory; why some of it is left, by name."""
    with _trash(place) as (_, trash):
        return remove(trash, entry, deadline)


def empty(place: Path, deadline: Deadline) -> Kept:
    """Remove all that lies in the trash of this scratch directory, or comes meanwhile; why some of it is left."""
    kept: Kept = {}
    tried: set[str] = set()
    with suppress(FileNotFoundError), _trash(place) as (_, trash):
        while fresh := set(os.listdir(trash)) - tried:  # noqa: PTH208 - a descriptor is no path
            for entry in fresh:
                left = remove(trash, entry, deadline)
                kept |= left
                if not left:
                    _unbound(place, entry)
            tried |= fresh
    return kept


def _unbound(place: Path, entry: str) -> None:
    """Forget the bounds of the job whose scratch this was, unless it is here once more."""
    name = entry.partition(".")[0]
    if name.isdigit() and quota.enforced(place):
        number = int(name)
        with suppress(lock.Busy), lock.locked(number, ENDING) as held:
            if not job.state_file(number).exists():
                quota.unbound(place, quota.project_of(number))
                held.remove()


def note(place: Path) -> None:
    """That there is something for the unit in here, whatever the configuration will say by then."""
    try:
        if place not in noted():
            files.append(_notes(), f"{place}\n")
    except OSError as error:
        # As on a full disk. As long as the configuration stays as it is, nothing depends on it.
        journal.log(f"{_notes()}: {error}", phase="trash", priority=journal.WARNING)


def noted() -> list[Path]:
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
    # Not in an Epilog, which lasts only a few times as long as that import.
    from moorage.node.config.load import load

    deadline = Deadline(PATIENCE)
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
