"""The end of a job on this node: all that belongs to the job is removed, in an order in which nothing can come back.

Everything here can be repeated, and works for a job of which only the number is known. Whatever is still there at the
end is reported with its owner: only things that root made, and that no user holds, count as the node's fault.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
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

# Timeouts of single steps, within that of the whole.
STOPPING: Final = 20.0
LOCKING: Final = 20.0
UNMOUNTING: Final = 20.0
REMOVING: Final = 5.0
TIDYING: Final = 2.0
# A killed process that has not ended by then may wait for a FUSE server.
DYING: Final = 1.0

PHASE: Final = "epilog"
# Stands for the job's networks where a path stands for other things.
NETWORK: Final = Path("network")


@dataclass(frozen=True)
class Leftover:
    what: str
    name: str
    cause: str
    ours: bool = True

    def __str__(self) -> str:
        return f"{self.what} {self.name} is left: {self.cause}"

    @property
    def line(self) -> str:
        """The text as people read it: with its code."""
        return f"{self.what} {self.name} is left: {self.cause} [M-LEFT-1]"


def clean_up(job: int, deadline: Deadline, ending: Ending | None = None) -> list[Leftover]:
    """End and remove all that this job has on this node, and return what is left; `ending` goes into the record."""
    places = (lock.lock_file(job), state_file(job), run_directory(job))
    if not any(place.exists() for place in places) and not names.links_of(job):
        return []
    with lock.awaited(job):
        return _clean_up_locked(job, deadline, ending)


def _clean_up_locked(job: int, deadline: Deadline, ending: Ending | None) -> list[Leftover]:
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
        return clean_up_held(job, held, deadline, ending)
    finally:
        held.release()


def clean_up_held(job: int, held: Lock, deadline: Deadline, ending: Ending | None = None) -> list[Leftover]:
    """The same for a caller that holds the job's lock: then no warden lives."""
    try:
        known = state.load(job)
    except MoorageError as error:
        return [*_CleanUp(job, None, deadline).result(), Leftover("state", str(state_file(job)), str(error))]
    start = start_log.read(job)
    clean_up = _CleanUp(job, known, deadline)
    left = clean_up.result()
    if ending and clean_up.known:
        _put_on_record(clean_up.known, start, left, ending)
    if not left:
        state.forget(job)
        held.remove()
    return left


def _kill(job: int) -> None:
    """Kill the user's processes, and do nothing else: a warden or another cleanup may still be at work."""
    with suppress(OSError, MoorageError):
        known = state.load(job)
        if known and (leaf := _leaf(known)):
            cgroup.kill(delegation.cgroup_in(leaf), Deadline(DYING))


def _leaf(known: State) -> Leaf | None:
    """The placeholder's leaf as the warden wrote it down; None if that was another boot. It must be this job's."""
    if known.tree is None or not known.this_boot:
        return None
    return cgroup.leaf(f"/{known.tree.parent.relative_to(cgroup.ROOT)}", known.job.names)


def _put_on_record(known: State, start: Course, left: Sequence[Leftover], ending: Ending) -> None:
    """Write the record of the job once, also if the leftovers are cleaned up later."""
    if known.recorded:
        return
    about = known.about
    days, metrics = (about.days, about.metrics) if about else (record.DAYS, None)
    record.put(lambda: record.ended(known, start, left, ending), days, metrics)
    if left:
        known.noted(recorded=True)


@dataclass(frozen=True)
class _Step:
    """One kind of thing that a job has on this node: how it is removed, and how to see what is left of it."""

    # The errors of `act` are about this.
    place: Path
    act: Callable[[], object]
    verify: Callable[[], Iterable[Leftover]] = tuple


class _CleanUp:
    """All steps, in an order in which nothing can come back. After all have acted, each one looks again."""

    def __init__(self, job: int, known: State | None, deadline: Deadline) -> None:
        self.job = job
        self.known = known
        self.deadline = deadline
        self.run = run_directory(job)
        self.scratch = known.scratch if known and known.scratch and known.scratch.source else None
        self.source = Path(self.scratch.source) if self.scratch else None
        # The cgroup that Slurm made for the job, or for this step of it.
        self.top: Path | None = None
        # The networks that are still there after their removal was tried.
        self.networks: list[str] = []
        # The latest error about each place.
        self.causes: dict[Path, Exception] = {}

    def result(self) -> list[Leftover]:
        steps = [
            # A process that waits for a FUSE server dies only after the connection has ended.
            _Step(self.run, lambda: fuse.abort_below(self.run)),
            _Step(state_file(self.job), self._end_cgroups, self._cgroups_left),
            _Step(NETWORK, self._remove_networks, self._networks_left),
            _Step(self.run, self._unmount, self._mounts_left),
            _Step(self.source or self.run, self._remove_scratch, self._scratch_left),
            _Step(self.run, self._remove_run_directory, self._run_directory_left),
        ]
        for step in steps:
            self._attempt(step.place, step.act)
        # Backwards: killed processes have the most time to end.
        return [left for step in reversed(steps) for left in step.verify()]

    def _attempt(self, place: Path, act: Callable[[], object]) -> None:
        """Do something. Also an unforeseen error must not keep the other steps from being done."""
        try:
            act()
        except Exception as error:
            self.causes[place] = error
            journal.log(f"{place}: {told(error)}", phase=PHASE, job=self.job, priority=journal.WARNING)

    def _left(self, what: str, place: Path, called: str = "") -> Leftover:
        """A leftover with the known cause. A full disk is the fault of its users, and not the node's."""
        cause = self.causes.get(place)
        why, ours = (told(cause), not no_room(cause)) if cause else ("it came back", True)
        return Leftover(what, called or str(place), why, ours)

    def _end_cgroups(self) -> None:
        """End the job's processes, and remove the cgroups that they were in."""
        known = self.known
        leaf = _leaf(known) if known else None
        if known is None or leaf is None:
            return
        # An Epilog can run as a part of the job (PrologFlags=RunInJob): Slurm still needs the other steps then.
        self.top = top = leaf.step if cgroup.holds(leaf.job, os.getpid()) else leaf.job
        # The other steps need the rest of the time.
        deadline = self.deadline.within(min(known.limits.kill_wait, self.deadline.left / 2))
        self._attempt(top, lambda: _wake(delegation.cgroup_in(leaf), deadline.within(deadline.left / 2)))
        self._attempt(top, lambda: self._end_delegation(known, deadline))
        # Slurm removes each of its directories only once. At that time ours was still in them.
        self._attempt(top, lambda: cgroup.remove(top))

    def _end_delegation(self, known: State, deadline: Deadline) -> None:
        self.known = delegation.ended(known, deadline)

    def _cgroups_left(self) -> Iterator[Leftover]:
        top = self.top
        if not (top and top.exists()):
            if state_file(self.job) in self.causes:
                yield self._left("state", state_file(self.job))
            return
        pids = cgroup.tasks(top)
        for pid in pids:
            yield Leftover("process", f"{pid} ({name(pid)})", f"it is in {top} and does not end", ours=False)
        if not pids:
            # The last process may have ended since.
            self._attempt(top, lambda: cgroup.remove(top))
            if top.exists():
                yield replace(self._left("cgroup", top), ours=not cgroup.populated(top))

    def _remove_networks(self) -> None:
        """Remove the networks, for which the job's number is enough."""
        if not self._may_have_networks():
            return
        # This stays if the look below fails.
        self.networks = [names.table(self.job)]
        # Imported here, because most jobs have no network of their own.
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
            # A node on which no job can have a network may also be unable to list networks.
            return False

    def _networks_left(self) -> Iterator[Leftover]:
        return (self._left("network", NETWORK, network) for network in self.networks)

    def _unmount(self) -> None:
        """Unmount lazily and at the top: that takes along all mounts below, and no name below is ever looked at.

        Another process does it: the last user of a file system waits until all is written to the disk.
        """
        while mounts.holding(self.run, mounts.table()).point == self.run:
            run(["umount", "--lazy", self.run], limit=self.deadline.within(UNMOUNTING).left)

    def _mounts_left(self) -> Iterator[Leftover]:
        # slurmd may run in another mount namespace than this process.
        seen = mounts.table() + mounts.table(read(1, "mountinfo"))
        return (self._left("mount", point) for point in mounts.below(self.run, seen))

    def _remove_scratch(self) -> None:
        if not self.scratch or not self.source:
            return
        entry = trash.put(self.source)
        if entry and trash.remove_entry(self.source.parent, entry, self.deadline.within(REMOVING)):
            # The limits of the scratch stay until its content is gone. Then the unit ends them.
            trash.note(self.source.parent)
            systemd.start_aside(trash.UNIT, self.deadline.left)
        else:
            scratch.release(self.scratch)

    def _scratch_left(self) -> Iterator[Leftover]:
        if self.source and os.path.lexists(self.source):
            yield self._left("scratch", self.source)

    def _remove_run_directory(self) -> None:
        """Remove the run directory. Unmounted, it holds at most a few files of root's: for these there is always time.

        With the directory the kernel also detaches what other mount namespaces still have mounted on it (seen on 6.18).
        """
        with opened(self.run.parent) as parent:
            for name, reason in remove(parent, self.run.name, Deadline(TIDYING)).items():
                raise MoorageError(f"{name}: {reason}")

    def _run_directory_left(self) -> Iterator[Leftover]:
        if os.path.lexists(self.run):
            yield self._left("run directory", self.run)


def _wake(tree: Path, deadline: Deadline) -> None:
    """Kill, and if some processes do not end, end the FUSE connections in the user's mount namespaces."""
    try:
        # After this, no process of the tree can mount anything.
        cgroup.kill(tree, deadline.within(DYING))
    except cgroup.Stuck:
        fuse.abort_within(tree, deadline)
