"""A part of a job's cgroup is delegated to the job's owner. This file reads from top to bottom as it happens:

1. The placeholder, a task of the step, asks the warden to lend its cgroup, which Slurm made for this task (its leaf).
2. The agent, another task of the same step, asks for a cgroup.
3. The warden writes down what it is about to make.
4. It moves the placeholder into the agent's leaf. In the empty leaf it makes the cgroup `k8s`, sets limits that stay
   root's, and gives the cgroup to the owner: this is the delegated cgroup.
5. It answers both tasks, and watches the agent's process.
6. When the agent has ended, however it ended, the warden kills all that is in the delegated cgroup, and removes it.

The Epilog repeats step 6 with whatever is left.
"""

from __future__ import annotations

import errno
import os
import selectors
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, UserError, told
from moorage.common.job import Job
from moorage.linux import cgroup
from moorage.linux.cgroup import Leaf, Usage, number, put
from moorage.linux.process import Process, running
from moorage.node.config.values import MIB
from moorage.root import journal
from moorage.root.state import Limits, Phase, State
from moorage.root.warden.listener import Answers, Caller, Connection, identify

NAME: Final = "k8s"
INIT: Final = "init"
CONTROLLERS: Final = ("cpuset", "cpu", "memory", "pids")
# The files that the kernel means to be given away with a directory. The limits beside them stay root's.
DELEGATED: Final = ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "memory.oom.group", "memory.reclaim")
LEAST_MEMORY: Final = 32 * MIB


@dataclass(frozen=True)
class Waiting:
    """A task that waits for the other task of its step."""

    connection: Connection
    caller: Caller

    @property
    def there(self) -> bool:
        return self.connection.open and self.caller.process.alive


class Delegation:
    """The one delegation in the life of a job, and the job's state, which nothing else in the warden changes."""

    def __init__(self, state: State, events: selectors.BaseSelector, answers: Answers) -> None:
        self.state = state
        self.events = events
        self.answers = answers
        self.placeholders: list[Waiting] = []
        self.agents: list[Waiting] = []

    def lend(self, connection: Connection) -> None:
        """Step 1."""
        placeholder = identify(connection.peer, self.state.job)
        if not self._done_before(placeholder.process == self.state.lender, connection):
            connection.wait(self.state.limits.lend_wait, "no other task of this step has asked for this one's cgroup")
            self.placeholders.append(Waiting(connection, placeholder))
            self._match()

    def ask(self, connection: Connection) -> None:
        """Step 2."""
        agent = identify(connection.peer, self.state.job)
        if not self._done_before(agent.process == self.state.agent, connection):
            connection.wait(self.state.limits.lend_wait, "no other task of this step has lent its cgroup")
            self.agents.append(Waiting(connection, agent))
            self._match()

    def _done_before(self, same: bool, connection: Connection) -> bool:
        """Answer a task that asks again, as after a lost connection; whether the delegation is done already."""
        if self.state.agent is None:
            return False
        if self.state.phase != Phase.DELEGATED:
            raise MoorageError("the agent of this job has ended, and what was delegated to it is gone")
        if not same:
            raise MoorageError(f"this job has an agent already: process {self.state.agent.pid}")
        self._grant(connection)
        return True

    def _match(self) -> None:
        """Go on with step 3 once an agent and a placeholder of one step have asked."""
        self.placeholders = [one for one in self.placeholders if one.there]
        self.agents = [one for one in self.agents if one.there]
        pairs = ((agent, placeholder) for agent in self.agents for placeholder in self.placeholders)
        for agent, placeholder in pairs:
            if placeholder.caller.can_lend_to(agent.caller):
                self._delegate(agent, placeholder)
                return

    def _delegate(self, agent: Waiting, placeholder: Waiting) -> None:
        """Steps 3 to 5."""
        tree, process = cgroup_in(placeholder.caller.leaf), agent.caller.process
        self.state = self.state.changed(tree=tree, agent=process, lender=placeholder.caller.process)
        try:
            job, limits = self.state.job, self.state.limits
            delegate(agent.caller.leaf, placeholder.caller.leaf, placeholder.caller.process, job, limits)
            self.state = self.state.changed(phase=Phase.DELEGATED)
        except Exception as error:
            self.end("delegation failed")
            self.answers.refuse(agent.connection, "delegate", told(error))
            self.answers.refuse(placeholder.connection, "lend", told(error))
            return
        journal.log(f"{tree} is process {process.pid}'s", phase="delegate", job=self.state.job)
        self._watch(process)
        self._grant(agent.connection)
        self._grant(placeholder.connection)

    def _grant(self, connection: Connection) -> None:
        self.answers.grant(connection, {"tree": str(self.state.tree)})

    def _watch(self, agent: Process) -> None:
        """Notice the agent's end. Its connection would not tell: a child of the agent can hold that open."""
        try:
            descriptor = agent.opened()
        except ProcessLookupError:
            self.end("the agent has ended")
            return
        self.events.register(descriptor, selectors.EVENT_READ, lambda: self._agent_ended(descriptor))

    def _agent_ended(self, descriptor: int) -> None:
        self.events.unregister(descriptor)
        os.close(descriptor)
        self.end("the agent has ended")

    def end(self, reason: str) -> None:
        """Step 6. What cannot be ended now is left to the Epilog, which tries again and names it."""
        deadline = Deadline(self.state.limits.kill_wait)
        try:
            self.state = ended(self.state, deadline)
        except Exception as error:
            journal.log(f"{reason}, but {told(error)}", phase="end", job=self.state.job, priority=journal.ERROR)
            return
        journal.log(reason, phase="end", job=self.state.job)

    def resume(self) -> None:
        """Go on where an earlier warden of this job was stopped."""
        if self.state.phase == Phase.DELEGATED and self.state.agent:
            self._watch(self.state.agent)
        elif self.state.phase == Phase.PREPARED and self.state.tree:
            self.end("the warden was stopped while it delegated")


def cgroup_in(leaf: Leaf) -> Path:
    """The path of the delegated cgroup in the placeholder's leaf."""
    return leaf.path / NAME


def delegate(agent: Leaf, lent: Leaf, placeholder: Process, owner: Job, limits: Limits) -> None:
    """Step 4: empty the lent leaf into the agent's, and give a bounded cgroup in it to the owner of the job.

    Slurm's accounting reads the files of the lent leaf, which count all that is below it.
    """
    memory = memory_limit(_memory_limits(lent), limits.memory_reserve)
    move(placeholder, agent)
    enable(CONTROLLERS, lent.chain)
    tree = cgroup_in(lent)
    (tree / INIT).mkdir(mode=0o755, parents=True)
    bound(tree, memory, limits)
    enable(CONTROLLERS, [tree])
    for directory in (tree / INIT, tree):
        give(directory, owner)
    # A process can move only if the owner can also write this file of the common ancestor (seen on 6.18). Below `user`
    # there are only processes of the owner; further up there is slurmstepd.
    os.chown(lent.user / "cgroup.procs", owner.uid, owner.gid)


def move(process: Process, leaf: Leaf) -> None:
    """Move a process. Nothing happens between look and move: the kernel knows the process by a number only."""
    with process.held() as descriptor:
        put(leaf.path / "cgroup.procs", process.pid)
        # If it has ended, the number that was moved may have been another process's.
        if not running(descriptor):
            raise MoorageError("the task that lent its cgroup has ended")


def memory_limit(around: Iterable[int | None], reserve: int) -> int | None:
    """The memory of all containers, below the job's: the kernel then kills a container and not the script.

    None is no limit.
    """
    known = [limit for limit in around if limit is not None]
    if not known:
        return None
    left = min(known) - reserve
    if left < LEAST_MEMORY:
        raise UserError(
            f"this job has {min(known) // MIB} MiB of memory on this node, of which {reserve // MIB} MiB are kept for"
            " its script",
            f"ask for at least {(reserve + LEAST_MEMORY) // MIB} MiB (--mem)",
            code="M-JOB-15",
        )
    return left


def _memory_limits(leaf: Leaf) -> list[int | None]:
    """The limits of the leaf and of all cgroups above it.

    Slurm sets memory.high to what the job asked for, and memory.max to what the site allows beyond that.
    """
    around = [directory for directory in (leaf.path, *leaf.path.parents) if directory.is_relative_to(cgroup.ROOT)]
    return [number(directory / name) for directory in around for name in ("memory.max", "memory.high")]


def enable(controllers: Iterable[str], along: Iterable[Path]) -> None:
    """Enable these controllers for the children of each directory."""
    wanted = " ".join(f"+{controller}" for controller in controllers)
    for directory in along:
        try:
            put(directory / "cgroup.subtree_control", wanted)
        except OSError as error:
            there = (directory / "cgroup.controllers").read_text().split()
            missing = [controller for controller in controllers if controller not in there]
            raise MoorageError(f"{directory}: {_cause(error, missing)}") from error


def _cause(error: OSError, missing: list[str]) -> str:
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
    """Give a cgroup to the owner; the directory last, so that nobody else can make anything in it until then."""
    for name in DELEGATED:
        with suppress(FileNotFoundError):
            os.chown(directory / name, owner.uid, owner.gid)
    os.chown(directory, owner.uid, owner.gid)


def ended(state: State, deadline: Deadline) -> State:
    """Step 6: kill and remove the delegated cgroup; the state after that, with what the job used.

    Stuck if a process in it does not end. All of it can be repeated. The state is written last: users can fill the
    disk.
    """
    tree = state.tree
    if tree is None:
        return state
    used = state.usage or _used(tree)
    take_back(tree)
    cgroup.kill(tree, deadline)
    if not cgroup.remove(tree):
        raise MoorageError(f"{tree} cannot be removed: a process was started in it again")
    if used and not state.usage:
        journal.log(f"used {used}", phase="end", job=state.job, **used.as_dict())
    return state if state.phase == Phase.ENDED else state.noted(phase=Phase.ENDED, usage=used)


def take_back(tree: Path) -> None:
    """From here on nobody can move a process of the step into the delegated cgroup."""
    with suppress(FileNotFoundError):
        os.chown(tree.parents[1] / "cgroup.procs", 0, 0)


def _used(tree: Path) -> Usage | None:
    try:
        return Usage.of(tree)
    except OSError:
        return None
