"""The part of a job's cgroup that its owner may manage: made, bounded, given to him, taken back and ended."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, UserError
from moorage.common.job import Job
from moorage.linux import cgroup
from moorage.linux.cgroup import Leaf, Usage, number, put
from moorage.linux.process import Process, running
from moorage.node.config.values import MIB
from moorage.root import journal
from moorage.root.state import Limits, Phase, State

TREE: Final = "k8s"
INIT: Final = "init"
CONTROLLERS: Final = ("cpuset", "cpu", "memory", "pids")
# What the kernel means to be given away with a directory; the limits beside them stay root's.
DELEGATED: Final = ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "memory.oom.group", "memory.reclaim")
LEAST_MEMORY: Final = 32 * MIB


def tree_of(lent: Leaf) -> Path:
    return lent.path / TREE


def delegate(agent: Leaf, lent: Leaf, lender: Process, owner: Job, limits: Limits) -> None:
    """Empty the lent leaf into the agent's, and give a bounded tree in it to the owner of the job.

    Slurm's accounting reads the lent leaf's files, which count all that is below it.
    """
    memory = memory_limit(_memory_limits(lent), limits.memory_reserve)
    move(lender, agent)
    enable(CONTROLLERS, lent.chain)
    tree = tree_of(lent)
    (tree / INIT).mkdir(mode=0o755, parents=True)
    bound(tree, memory, limits)
    enable(CONTROLLERS, [tree])
    for directory in (tree / INIT, tree):
        give(directory, owner)
    # A process moves only where the common ancestor's file can be written, too (seen on 6.18). Below this one there are
    # none but the owner's processes; further up there is slurmstepd.
    os.chown(lent.user / "cgroup.procs", owner.uid, owner.gid)


def move(process: Process, leaf: Leaf) -> None:
    """The kernel is told a number, which a process that ends gives free: nothing is done between look and move."""
    with process.held() as descriptor:
        put(leaf.path / "cgroup.procs", process.pid)
        # Else the number that was moved may have been another's.
        if not running(descriptor):
            raise MoorageError("the task that lent its cgroup has ended")


def memory_limit(around: Iterable[int | None], reserve: int) -> int | None:
    """What the containers may take, so that one of them is killed before the job's script is; None is no limit."""
    known = [limit for limit in around if limit is not None]
    if not known:
        return None
    left = min(known) - reserve
    if left < LEAST_MEMORY:
        raise UserError(
            f"this job has {min(known) // MIB} MiB of memory on this node, of which {reserve // MIB} MiB are kept for"
            " its script",
            f"ask for at least {(reserve + LEAST_MEMORY) // MIB} MiB (--mem)",
        )
    return left


def _memory_limits(leaf: Leaf) -> list[int | None]:
    """Slurm sets memory.high to what was asked for, and memory.max to what the site allows beyond that."""
    around = [directory for directory in (leaf.path, *leaf.path.parents) if directory.is_relative_to(cgroup.ROOT)]
    return [number(directory / name) for directory in around for name in ("memory.max", "memory.high")]


def enable(controllers: Iterable[str], along: Iterable[Path]) -> None:
    """Have these controllers in the children of each directory."""
    wanted = " ".join(f"+{controller}" for controller in controllers)
    for directory in along:
        try:
            put(directory / "cgroup.subtree_control", wanted)
        except OSError as error:
            there = (directory / "cgroup.controllers").read_text().split()
            missing = [controller for controller in controllers if controller not in there]
            raise MoorageError(f"{directory}: {_refusal(error, missing)}") from error


def _refusal(error: OSError, missing: list[str]) -> str:
    if missing:
        return f"has no controller {', '.join(missing)}: the cgroups above it do not hand it down"
    if error.errno == errno.EBUSY:
        return "still holds processes: the task that lends its cgroup must have no children"
    return error.strerror or str(error)


def bound(tree: Path, memory: int | None, limits: Limits) -> None:
    if memory is not None:
        put(tree / "memory.max", memory)
    put(tree / "pids.max", limits.processes)
    put(tree / "cgroup.max.descendants", limits.cgroups)
    put(tree / "cgroup.max.depth", limits.depth)


def give(directory: Path, owner: Job) -> None:
    """The directory last: until then nobody else can make anything in it."""
    for name in DELEGATED:
        with suppress(FileNotFoundError):
            os.chown(directory / name, owner.uid, owner.gid)
    os.chown(directory, owner.uid, owner.gid)


def take_back(tree: Path) -> None:
    """From here on nobody can move a process into the tree from elsewhere in the step."""
    with suppress(FileNotFoundError):
        os.chown(tree.parents[1] / "cgroup.procs", 0, 0)


def ended(state: State, deadline: Deadline) -> State:
    """The state after the job's tree has been ended and removed, and what it used written down.

    Stuck if a process in it does not end; all of it can be done again. It is written last, for users can fill the disk.
    """
    tree = state.tree
    if tree is None:
        return state
    used = state.usage or _used(tree)
    take_back(tree)
    cgroup.kill(tree, deadline)
    if not cgroup.remove(tree):
        raise MoorageError(f"{tree} cannot be removed: something has come to life in it again")
    if used and not state.usage:
        journal.log(f"used {used}", phase="end", job=state.job, **used.as_dict())
    return state if state.phase == Phase.ENDED else state.noted(phase=Phase.ENDED, usage=used)


def _used(tree: Path) -> Usage | None:
    try:
        return Usage.of(tree)
    except OSError:
        return None
