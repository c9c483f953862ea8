"""The warden: what root does for one job on one node, at the request of the job's owner and of nobody else.

It says farewell to nothing: whatever ends it, all that matters is in the job's state.
"""

from __future__ import annotations

import os
import selectors
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, assert_never

from moorage.common import phases, warden_protocol
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, reported, told
from moorage.common.warden_protocol import Delegate, Lend, Plug, Request, Tell
from moorage.linux.cgroup import Usage
from moorage.linux.process import Process
from moorage.root import journal, lock, systemd
from moorage.root.records import start_log
from moorage.root.state import Phase, State, load
from moorage.root.warden import delegation
from moorage.root.warden.caller import Caller, identify
from moorage.root.warden.listener import Connection, Listener, Peer, bound
from moorage.root.warden.plugging import LIMIT, Plugging

if TYPE_CHECKING:
    from moorage.root.net.rule_watch import Watch

ROOT_UID: Final = 0
LOCK_NAME: Final = "lock"
LOCK_LIMIT: Final = 20.0
# So often the journal hears of refusals of one kind.
REFUSALS: Final = 1.0
# So many times in so many seconds a network is plugged.
MOST_PLUGS: Final = 10
PLUGS: Final = 10.0
# So often it is tried again to put rules back.
MENDING: Final = 1.0


@dataclass(frozen=True)
class Waiting:
    """A caller whose answer depends on another one."""

    connection: Connection
    caller: Caller

    @property
    def there(self) -> bool:
        return self.connection.open and self.caller.process.alive


class Warden:
    def __init__(self, state: State, events: selectors.BaseSelector) -> None:
        self.state = state
        self.events = events
        self.lenders: list[Waiting] = []
        self.agents: list[Waiting] = []
        self.silence: dict[str, Deadline] = {}
        self.plugging: Plugging | None = None
        # When each of the last ones will be forgotten.
        self.plugs: list[Deadline] = []
        self.rules: Watch | None = None
        # When to look at rules that could not be put back.
        self.again: Deadline | None = None
        ear = bound(state.job.socket, state.job.uid)
        self.listener = Listener(ear, events, (state.job.uid, ROOT_UID), self.serve)

    def run(self) -> NoReturn:
        while True:
            self.turn(self._patience)

    def turn(self, patience: float | None) -> None:
        """Deal with what happens next, or with nothing after `patience` seconds."""
        for key, _ in self.events.select(patience):
            key.data()
        self.listener.tidy()
        if self.again and self.again.passed:
            self._look()

    @property
    def _patience(self) -> float | None:
        waits = [self.listener.patience, self.again.left if self.again else None]
        return min((wait for wait in waits if wait is not None), default=None)

    def serve(self, connection: Connection, request: Request) -> None:
        try:
            match request:
                case warden_protocol.Usage():
                    self.listener.answer(connection, warden_protocol.ok(self._usage(connection.peer).as_dict()))
                case Lend():
                    self._lend(connection)
                case Delegate():
                    self._delegate(connection)
                case Plug(what):
                    self._plug(connection, what)
                case Tell(word, cause):
                    self._hear(connection, {"word": word, "cause": cause})
                case _:
                    assert_never(request)
        except Exception as error:
            self._refuse(connection, request.verb, told(error))

    def resume(self) -> None:
        """Go on where an earlier warden of this job was stopped."""
        if self.state.phase == Phase.DELEGATED and self.state.agent:
            self._watch(self.state.agent)
        elif self.state.phase == Phase.PREPARED and self.state.tree:
            self._end("the warden was stopped while it delegated")

    def watch_rules(self) -> None:
        """What the job's networks stand on, and whoever manages this node's packet filter may flush."""
        if self.state.networked:
            # Only here: most jobs have none.
            from moorage.root.net import job_networks
            from moorage.root.net.rule_watch import Watch

            self.rules = Watch(job_networks.kept(self.state))
            self.events.register(self.rules, selectors.EVENT_READ, self._look)
            self._look()

    def _look(self) -> None:
        if self.rules is None:
            return
        self.again = None
        try:
            for name in self.rules.look():
                journal.log(f"rules of {name} were gone, and are back", phase="network", job=self.state.job)
        except ExceptionGroup as errors:
            self.again = Deadline(MENDING)
            if self._may_tell("rules"):
                for error in errors.exceptions:
                    journal.log(told(error), phase="network", job=self.state.job, priority=journal.ERROR)

    def _plug(self, connection: Connection, what: str) -> None:
        """The one process that was given a part of the job may plug, as often as its network is made anew."""
        caller = identify(connection.peer, self.state.job)
        if self.state.phase != Phase.DELEGATED or caller.process != self.state.agent:
            raise MoorageError("only the agent of this job can ask for this")
        if not self.state.networked:
            raise MoorageError("this job has no network to plug")
        if self.plugging:
            raise MoorageError("an earlier network is being plugged: ask again")
        self.plugs = [one for one in self.plugs if not one.passed]
        if len(self.plugs) >= MOST_PLUGS:
            raise MoorageError("this is asked for too often: ask again in a while")
        self.plugs.append(Deadline(PLUGS))
        self.listener.leave(connection)
        connection.wait(LIMIT, "what was handed over keeps this node waiting")
        self.plugging = Plugging(connection, self.state, what)
        self.events.register(self.plugging, selectors.EVENT_READ, self._plugged)

    def _plugged(self) -> None:
        if self.plugging is None:
            return
        self.events.unregister(self.plugging)
        connection, answer = self.plugging.connection, self.plugging.answer()
        self.plugging = None
        try:
            warden_protocol.outcome(answer)
        except warden_protocol.Refused as refused:
            self._refuse(connection, "plug", str(refused))
        else:
            self.listener.answer(connection, answer)

    def _usage(self, peer: Peer) -> Usage:
        if peer.uid != ROOT_UID:
            identify(peer, self.state.job)
        if self.state.usage:
            return self.state.usage
        if self.state.tree is None:
            raise MoorageError("nothing has been delegated in this job yet")
        return Usage.of(self.state.tree)

    def _hear(self, connection: Connection, words: Mapping[str, str]) -> None:
        """How far the start has come: for the journal and the job's record, and for nothing else."""
        identify(connection.peer, self.state.job)
        if step := start_log.hear(self.state.job, words):
            seconds = start_log.read(self.state.job.id).since(step)
            about = {"step": step.word, "seconds": seconds, "cause": step.cause}
            grave = journal.WARNING if step.word == phases.FAILED else journal.INFO
            journal.log(start_log.told(step), phase="start", job=self.state.job, priority=grave, **about)
        self.listener.answer(connection, warden_protocol.ok({}))

    def _lend(self, connection: Connection) -> None:
        lender = identify(connection.peer, self.state.job)
        if not self._already(lender.process == self.state.lender, connection):
            connection.wait(self.state.limits.lend_wait, "no other task of this step has asked for this one's cgroup")
            self.lenders.append(Waiting(connection, lender))
            self._match()

    def _delegate(self, connection: Connection) -> None:
        agent = identify(connection.peer, self.state.job)
        if not self._already(agent.process == self.state.agent, connection):
            connection.wait(self.state.limits.lend_wait, "no other task of this step has lent its cgroup")
            self.agents.append(Waiting(connection, agent))
            self._match()

    def _already(self, same: bool, connection: Connection) -> bool:
        """Answer who asks again, as after a lost connection; there is one delegation in the life of a job."""
        if self.state.agent is None:
            return False
        if self.state.phase != Phase.DELEGATED:
            raise MoorageError("the agent of this job has ended, and what was delegated to it is gone")
        if not same:
            raise MoorageError(f"this job has an agent already: process {self.state.agent.pid}")
        self._grant(connection)
        return True

    def _match(self) -> None:
        """Bring together an agent and a task that lends its cgroup, once there are both of one step."""
        self.lenders = [one for one in self.lenders if one.there]
        self.agents = [one for one in self.agents if one.there]
        pairs = ((agent, lender) for agent in self.agents for lender in self.lenders)
        for agent, lender in pairs:
            if lender.caller.can_lend_to(agent.caller):
                self._hand_over(agent, lender)
                return

    def _hand_over(self, agent: Waiting, lender: Waiting) -> None:
        """Delegate the lender's leaf to the agent, and answer both."""
        tree = delegation.tree_of(lender.caller.leaf)
        self.state = self.state.changed(tree=tree, agent=agent.caller.process, lender=lender.caller.process)
        try:
            job, limits = self.state.job, self.state.limits
            delegation.delegate(agent.caller.leaf, lender.caller.leaf, lender.caller.process, job, limits)
            self.state = self.state.changed(phase=Phase.DELEGATED)
        except Exception as error:
            self._end("delegation failed")
            self._refuse(agent.connection, "delegate", told(error))
            self._refuse(lender.connection, "lend", told(error))
            return
        journal.log(f"{tree} is process {agent.caller.process.pid}'s", phase="delegate", job=self.state.job)
        self._watch(agent.caller.process)
        self._grant(agent.connection)
        self._grant(lender.connection)

    def _grant(self, connection: Connection) -> None:
        self.listener.answer(connection, warden_protocol.ok({"tree": str(self.state.tree)}))

    def _refuse(self, connection: Connection, verb: str, reason: str) -> None:
        self.listener.answer(connection, warden_protocol.error(reason))
        if self._may_tell(verb):
            message = f"refused {verb} to process {connection.peer.pid}: {reason}"
            journal.log(message, phase=verb, job=self.state.job, priority=journal.NOTICE)

    def _may_tell(self, what: str) -> bool:
        """Whether the journal has not heard of it just now."""
        if what in self.silence and not self.silence[what].passed:
            return False
        self.silence[what] = Deadline(REFUSALS)
        return True

    def _watch(self, agent: Process) -> None:
        """Be told of the agent's end; a connection would not tell, for a child of its can hold that open."""
        try:
            descriptor = agent.opened()
        except ProcessLookupError:
            self._end("the agent has ended")
            return
        self.events.register(descriptor, selectors.EVENT_READ, lambda: self._agent_ended(descriptor))

    def _agent_ended(self, descriptor: int) -> None:
        self.events.unregister(descriptor)
        os.close(descriptor)
        self._end("the agent has ended")

    def _end(self, reason: str) -> None:
        """What cannot be ended now is left to the Epilog, which tries again and names it."""
        deadline = Deadline(self.state.limits.kill_wait)
        try:
            self.state = delegation.ended(self.state, deadline)
        except Exception as error:
            journal.log(f"{reason}, but {told(error)}", phase="end", job=self.state.job, priority=journal.ERROR)
            return
        journal.log(reason, phase="end", job=self.state.job)


def main(words: Sequence[str]) -> NoReturn:
    with reported("moorage-warden"), selectors.DefaultSelector() as events:
        (number,) = words
        job = int(number)
        held = _lock(job)
        systemd.keep(held.descriptor, LOCK_NAME)
        held.leave()
        state = load(job)
        if state is None or not state.this_boot:
            raise MoorageError(f"no Prolog has prepared job {job} on this node")
        warden = Warden(state.noted(owner=Process.current()), events)
        warden.resume()
        warden.watch_rules()
        systemd.notify("READY=1")
        warden.run()


def _lock(job: int) -> lock.Lock:
    """What an earlier warden had, or what the Prolog gives up while it waits for us."""
    kept = systemd.kept()
    return lock.inherited(job, kept[LOCK_NAME]) if LOCK_NAME in kept else lock.take(job, LOCK_LIMIT)


if __name__ == "__main__":
    main(sys.argv[1:])
