"""The end of a job on this node: all that is its own is removed, in an order in which nothing can come back.

Everything here can be done twice, and for a job of which nothing but the number is known. What is still there at the
end is named, with whose it is: only what root made, and no user holds, is held against the node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from moorage.common.command import run
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, no_room, told
from moorage.common.job import run_directory, state_file
from moorage.linux import cgroup, fuse, mounts
from moorage.linux.beneath import opened
from moorage.linux.cgroup import Leaf
from moorage.linux.process import name, read
from moorage.root import journal, lock, scratch, state, systemd
from moorage.root.cleanup import trash
from moorage.root.cleanup.remove_tree import remove
from moorage.root.lock import Lock
from moorage.root.net import names
from moorage.root.records import record, start_log
from moorage.root.records.record import Ending
from moorage.root.records.start_log import Course
from moorage.root.state import State
from moorage.root.warden import delegation

# What each step may take of the whole limit.
STOPPING: Final = 20.0
LOCKING: Final = 20.0
UNMOUNTING: Final = 20.0
REMOVING: Final = 5.0
TIDYING: Final = 2.0
# Who is killed and has not ended by then may be waiting for something.
DYING: Final = 1.0

PHASE: Final = "epilog"
# What is said of the job's networks is said of this.
NETWORK: Final = Path("network")


@dataclass(frozen=True)
class Leftover:
    what: str
    name: str
    cause: str
    ours: bool = True

    def __str__(self) -> str:
        return f"{self.what} {self.name} is left: {self.cause}"


def clear(job: int, deadline: Deadline, ending: Ending | None = None) -> list[Leftover]:
    """End and remove all that this job has on this node; what is left of it. With an ending, it is put on record."""
    places = (lock.lock_file(job), state_file(job), run_directory(job))
    if not any(place.exists() for place in places) and not names.links_of(job):
        return []
    with lock.awaited(job):
        return _cleared(job, deadline, ending)


def _cleared(job: int, deadline: Deadline, ending: Ending | None) -> list[Leftover]:
    unit = systemd.warden_unit(job)
    try:
        systemd.stop(unit, deadline.within(STOPPING).left)
    except MoorageError as error:
        _kill(job)
        return [Leftover("unit", unit, str(error))]
    try:
        held = lock.take(job, deadline.within(LOCKING).left)
    except (lock.Busy, OSError) as error:
        _kill(job)
        return [Leftover("lock", str(lock.lock_file(job)), str(error), ours=not no_room(error))]
    try:
        return clear_held(job, held, deadline, ending)
    finally:
        held.release()


def clear_held(job: int, held: Lock, deadline: Deadline, ending: Ending | None = None) -> list[Leftover]:
    """The same where the job's lock is held, and therefore no warden lives."""
    try:
        known = state.load(job)
    except MoorageError as error:
        return [*_Clearance(job, None, deadline).result(), Leftover("state", str(state_file(job)), str(error))]
    way = start_log.read(job)
    clearance = _Clearance(job, known, deadline)
    left = clearance.result()
    if ending and clearance.known:
        _put_on_record(clearance.known, way, left, ending)
    if not left:
        state.forget(job)
        held.remove()
    return left


def _kill(job: int) -> None:
    """Nothing else is done while the warden may live, or another one is at it; but nothing of the user's lives on."""
    with suppress(OSError, MoorageError):
        known = state.load(job)
        if known and (leaf := _leaf(known)):
            cgroup.kill(leaf.path / delegation.NAME, Deadline(DYING))


def _leaf(known: State) -> Leaf | None:
    """What the warden wrote down is looked at again: it may be of another boot, and it must be this job's."""
    if known.tree is None or not known.this_boot:
        return None
    return cgroup.leaf(f"/{known.tree.parent.relative_to(cgroup.ROOT)}", known.job.names)


def _put_on_record(known: State, way: Course, left: Sequence[Leftover], ending: Ending) -> None:
    """Once: whoever comes back to what is left does not write another one."""
    if known.recorded:
        return
    about = known.about
    days, metrics = (about.days, about.metrics) if about else (record.DAYS, None)
    record.put(lambda: record.ended(known, way, left, ending), days, metrics)
    if left:
        known.noted(recorded=True)


class _Clearance:
    def __init__(self, job: int, known: State | None, deadline: Deadline) -> None:
        self.job = job
        self.known = known
        self.deadline = deadline
        self.run = run_directory(job)
        # What Slurm has made for the job, or for its step of ours.
        self.cgroups: Path | None = None
        self.causes: dict[Path, Exception] = {}
        # Those that could not be removed, once that was tried.
        self.networks: list[str] = []

    def result(self) -> list[Leftover]:
        """Do it all, whatever becomes of each part, and see what is still there."""
        self._attempt(self.run, self._wake_mounts)
        self._attempt(state_file(self.job), self._end_cgroups)
        self._attempt(NETWORK, self._remove_networks)
        self._attempt(self.run, self._unmount)
        self._discard_scratch()
        self._attempt(self.run, self._remove_run_directory)
        return [*self._still_there()]

    def _attempt(self, place: Path, act: Callable[[], object]) -> None:
        """An error nobody foresaw must not keep the other parts from being done either."""
        try:
            act()
        except Exception as error:
            self._blame(place, error)

    def _blame(self, place: Path, error: Exception) -> None:
        self.causes[place] = error
        journal.log(f"{place}: {told(error)}", phase=PHASE, job=self.job, priority=journal.WARNING)

    def _wake_mounts(self) -> None:
        """End the connections of FUSE mounts, so that whoever waits for one of their servers can die."""
        fuse.abort_below(self.run)

    def _end_cgroups(self) -> None:
        known = self.known
        leaf = _leaf(known) if known else None
        if known is None or leaf is None:
            return
        # An Epilog can run as a part of the job (PrologFlags=RunInJob): Slurm is not done then with the other steps.
        self.cgroups = top = leaf.step if cgroup.holds(leaf.job, os.getpid()) else leaf.job
        # The rest of the time is for the rest.
        patience = self.deadline.within(min(known.limits.kill_wait, self.deadline.left / 2))
        self._attempt(top, lambda: _wake(leaf.path / delegation.NAME, patience.within(patience.left / 2)))
        self._attempt(top, lambda: self._end_tree(known, patience))
        # Slurm removes each of its directories only once, and by then ours was still in there.
        self._attempt(top, lambda: cgroup.remove(top))

    def _end_tree(self, known: State, patience: Deadline) -> None:
        self.known = delegation.ended(known, patience)

    def _remove_networks(self) -> None:
        """By the job's number alone."""
        if not self._may_have_networks():
            return
        # Unless it can be looked at.
        self.networks = [names.table(self.job)]
        # Only here: most jobs have none.
        from moorage.root.net import job_networks

        try:
            job_networks.remove(self.job)
        finally:
            self.networks = job_networks.left(self.job)

    def _may_have_networks(self) -> bool:
        if names.links_of(self.job):
            return True
        if self.known:
            return self.known.networked
        try:
            from moorage.root.net import job_networks

            return bool(job_networks.left(self.job))
        except Exception:
            # A node that can never have any is not able to say so either.
            return False

    def _unmount(self) -> None:
        """Lazily and at the top: it takes along what is mounted below, and no name below is ever looked at.

        In a process of its own, for the last user of a file system waits until all is written to the disk.
        """
        while mounts.holding(self.run, mounts.table()).point == self.run:
            run(["umount", "--lazy", self.run], limit=self.deadline.within(UNMOUNTING).left)

    def _discard_scratch(self) -> None:
        record = self.known.scratch if self.known else None
        if record and record.source:
            source = Path(record.source)
            self._attempt(source, lambda: self._into_trash(source, record))

    def _into_trash(self, source: Path, record: state.Scratch) -> None:
        entry = trash.take(source)
        if entry and trash.discard(source.parent, entry, self.deadline.within(REMOVING)):
            trash.note(source.parent)
            systemd.start_aside(trash.UNIT, self.deadline.left)
        else:
            # Until its content is gone, its bounds stay; then the unit does this.
            scratch.release(record)

    def _remove_run_directory(self) -> None:
        """What is in it by now, if anything, is a refusal of root's: there is always time for that.

        With the directory the kernel also detaches what other mount namespaces still have mounted on it (seen on 6.18).
        """
        with opened(self.run.parent) as parent:
            for name, reason in remove(parent, self.run.name, Deadline(TIDYING)).items():
                raise MoorageError(f"{name}: {reason}")

    def _still_there(self) -> Iterator[Leftover]:
        # slurmd may run in a mount namespace of its own.
        for point in mounts.below(self.run, mounts.table() + mounts.table(read(1, "mountinfo"))):
            yield self._left("mount", point)
        if os.path.lexists(self.run):
            yield self._left("run directory", self.run)
        for network in self.networks:
            yield self._left("network", NETWORK, network)
        if self.known and self.known.scratch and self.known.scratch.source:
            source = Path(self.known.scratch.source)
            if os.path.lexists(source):
                yield self._left("scratch", source)
        if self.cgroups and self.cgroups.exists():
            yield from self._cgroups_still_there(self.cgroups)
        elif state_file(self.job) in self.causes:
            yield self._left("state", state_file(self.job))

    def _cgroups_still_there(self, top: Path) -> Iterator[Leftover]:
        pids = cgroup.tasks(top)
        for pid in pids:
            yield Leftover("process", f"{pid} ({name(pid)})", f"it is in {top} and does not end", ours=False)
        if not pids:
            # The last of them may have died since.
            self._attempt(top, lambda: cgroup.remove(top))
            if top.exists():
                yield replace(self._left("cgroup", top), ours=not cgroup.populated(top))

    def _left(self, what: str, place: Path, called: str = "") -> Leftover:
        """A full disk is its users' fault."""
        cause = self.causes.get(place)
        why, ours = (told(cause), not no_room(cause)) if cause else ("it came back", True)
        return Leftover(what, called or str(place), why, ours)


def _wake(tree: Path, deadline: Deadline) -> None:
    """The same for mounts in namespaces of the user's, where some of his processes do not die at once."""
    try:
        # From here on they can mount no more.
        cgroup.kill(tree, deadline.within(DYING))
    except cgroup.Stuck:
        fuse.abort_within(tree, deadline)
