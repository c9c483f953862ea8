"""Copies of the store, one for each user, for nodes on which idmapped mounts of the store do not work."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, Taken
from moorage.linux import flock, idmap
from moorage.linux.idmap import Owners
from moorage.root.images import opaque
from moorage.root.images.storage_layers import Layer, layers
from moorage.root.images.store import Store

OVERFLOW: Final = 65534
# Podman's library keeps more directories for containers, but the store has none.
DESCRIPTIONS: Final = ("overlay-images", "overlay-layers")
KEPT: Final = (opaque.USERS, "security.capability")
SET_ID: Final = stat.S_ISUID | stat.S_ISGID
# A file is copied in pieces of this size. The deadline is checked after each one.
CHUNK: Final = 1 << 26


@contextmanager
def ready(store: Store, uid: int, whose: Owners, limit: float) -> Iterator[Path]:
    """The user's copy, complete. If the time is over, the user's next job continues with what is there.

    Until the block ends, no command changes the store or removes copies that no job sees yet.
    """
    time_left = TimeLeft(limit)
    place = store.copies / f"{uid}-{hashlib.sha256(repr(whose).encode()).hexdigest()[:16]}"
    with _locked(store.lock, flock.SHARED, time_left):
        place.mkdir(mode=0o700, exist_ok=True)
        with _locked(place / "lock", flock.EXCLUSIVE, time_left):
            graph = _copy(Copier(store, whose, time_left), place / "images")
        yield graph


def _copy(copier: Copier, graph: Path) -> Path:
    source = copier.store.graph
    for directory in (graph, graph / "overlay", graph / "overlay/l"):
        copier.directory(directory)
    for layer in layers(source).values():
        if not (graph / "overlay" / layer.id).exists():
            copier.layer(layer, graph)
    for name in DESCRIPTIONS:
        _exchange(copier, source / name, graph / name)
    return graph


def remove_all(store: Store) -> None:
    """Remove all copies. No job may have a view, or be about to get one."""
    for place in store.copies.iterdir():
        shutil.rmtree(place)


class TimeLeft:
    """The timeout for the whole copy, and for waiting for another job of the user or a command.

    slurmd does not wait for ever.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.deadline = Deadline(limit)

    def insist(self) -> None:
        if self.deadline.passed:
            raise self.expired()

    def expired(self) -> Taken:
        what = f"the node's images were not copied for this user within {self.limit:g} s"
        return Taken(what, "submit the job anew, which goes on from there, or have wait.copy raised", code="M-STORE-12")


@dataclass
class Copier:
    """Copies root's trees for one user. Links are copied and not followed. Of devices only whiteouts are copied."""

    store: Store
    whose: Owners
    time: TimeLeft
    # Hard links stay hard links: the first copy of each file that has several names.
    seen: dict[tuple[int, int], Path] = field(default_factory=dict)

    def layer(self, layer: Layer, graph: Path) -> None:
        half = graph / "overlay" / f".{layer.id}"
        shutil.rmtree(half, ignore_errors=True)
        self.seen.clear()
        self.tree(layer.place, half)
        link = (layer.place / "link").read_text().strip()
        if not link.isalnum():
            raise MoorageError(f"{layer.place}/link is no name")
        short = graph / "overlay/l" / link
        short.unlink(missing_ok=True)
        short.symlink_to(f"../{layer.id}/diff")
        half.rename(graph / "overlay" / layer.id)

    def tree(self, source: Path, target: Path) -> None:
        """Copy a tree. Directories get owner, mode and times last: copying into them changes their times."""
        made: list[tuple[Path, Path]] = []
        waiting = [(source, target)]
        while waiting:
            directory, copy = waiting.pop()
            copy.mkdir(mode=0o700)
            made.append((directory, copy))
            self.store.insist_on_room()
            self.time.insist()
            with os.scandir(directory) as entries:
                for entry in entries:
                    pair = (Path(entry.path), copy / entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(pair)
                    else:
                        self.entry(*pair)
        for pair in reversed(made):
            self.dress(*pair)

    def entry(self, source: Path, target: Path) -> None:
        status = source.lstat()
        if earlier := self.seen.get((status.st_dev, status.st_ino)):
            os.link(earlier, target, follow_symlinks=False)
            return
        if stat.S_ISREG(status.st_mode):
            self.content(source, target)
        elif stat.S_ISLNK(status.st_mode):
            target.symlink_to(source.readlink())
        elif stat.S_ISFIFO(status.st_mode):
            os.mkfifo(target, 0o600)
        elif stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            os.mknod(target, stat.S_IFCHR | 0o600, 0)
        else:
            return
        if status.st_nlink > 1:
            self.seen[status.st_dev, status.st_ino] = target
        self.dress(source, target)

    def content(self, source: Path, target: Path) -> None:
        """Copy the content of a file. File systems that can do so share its blocks."""
        with source.open("rb") as old, target.open("xb") as new:
            while os.copy_file_range(old.fileno(), new.fileno(), CHUNK):
                self.time.insist()

    def dress(self, source: Path, target: Path) -> None:
        status = source.lstat()
        uid, gid = idmap.shown(status.st_uid, self.whose.uids), idmap.shown(status.st_gid, self.whose.gids)
        strange = uid is None or gid is None
        os.chown(target, OVERFLOW if uid is None else uid, OVERFLOW if gid is None else gid, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            mode = stat.S_IMODE(status.st_mode)
            target.chmod(mode & ~SET_ID if strange else mode)
            for name in KEPT:
                if value := opaque.attribute(source, name):
                    os.setxattr(target, name, value, follow_symlinks=False)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)

    def directory(self, place: Path) -> None:
        place.mkdir(mode=0o700, exist_ok=True)
        os.chown(place, self.whose.uids[0].shown, self.whose.gids[0].shown, follow_symlinks=False)


def _exchange(copier: Copier, source: Path, target: Path) -> None:
    """Copy a directory of descriptions again. Jobs that read the old ones find each file complete."""
    if not target.exists():
        copier.tree(source, target)
        return
    new = target.with_name(f".{target.name}")
    shutil.rmtree(new, ignore_errors=True)
    copier.tree(source, new)
    for directory, _, names in os.walk(new):
        beside = target / Path(directory).relative_to(new)
        if not beside.exists():
            beside.mkdir(mode=0o700)
            copier.dress(Path(directory), beside)
        for name in names:
            # In a copy that is in use, locks of jobs are mounted over the lock files: these stay.
            if not (name.endswith(".lock") and (beside / name).exists()):
                (Path(directory) / name).replace(beside / name)
    shutil.rmtree(new)


@contextmanager
def _locked(path: Path, how: int, time_left: TimeLeft) -> Iterator[None]:
    with flock.opened(path) as descriptor:
        if not flock.lock(descriptor, how, time_left.deadline):
            raise time_left.expired()
        yield
