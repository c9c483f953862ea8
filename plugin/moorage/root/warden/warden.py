"""The warden: what root does for one job on one node, at the request of the job's owner and of nobody else.

It needs no clean shutdown: all that matters is in the job's state on disk.
"""

from __future__ import annotations

import selectors
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn, assert_never

from moorage.common import phases, warden_protocol
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, reported, told
from moorage.common.warden_protocol import Delegate, Lend, Plug, Request, Tell
from moorage.linux.cgroup import Usage
from moorage.linux.process import Process
from moorage.root import journal, lock, systemd
from moorage.root.records import start_log
from moorage.root.state import State, load
from moorage.root.warden.delegation import Delegation
from moorage.root.warden.listener import Answers, Connection, Listener, Peer, bound, identify
from moorage.root.warden.plugging import Plugging

if TYPE_CHECKING:
    from moorage.root.net.rule_watch import Watch

ROOT_UID: Final = 0
LOCK_NAME: Final = "lock"
LOCK_TIMEOUT: Final = 20.0
# The warden tries to put rules back once in so many seconds.
MENDING: Final = 1.0


class Warden:
    """Answers the requests of one job's tasks, and watches its agent and its networks' rules."""

    def __init__(self, state: State, events: selectors.BaseSelector) -> None:
        self.events = events
        stream = bound(state.job.socket, state.job.uid)
        self.listener = Listener(stream, events, (state.job.uid, ROOT_UID), self.serve)
        self.answers = Answers(self.listener, state.job)
        self.delegation = Delegation(state, events, self.answers)
        self.plugging = Plugging(events, self.answers)
        self.rules: Watch | None = None
        # When to look again at rules that could not be put back.
        self.again: Deadline | None = None

    @property
    def state(self) -> State:
        return self.delegation.state

    def run(self) -> NoReturn:
        while True:
            self.turn(self._timeout)

    def turn(self, timeout: float | None) -> None:
        """Deal with the next events, or with none after this timeout."""
        for key, _ in self.events.select(timeout):
            key.data()
        self.listener.expire()
        if self.again and self.again.passed:
            self._look()

    @property
    def _timeout(self) -> float | None:
        waits = [self.listener.next_deadline, self.again.left if self.again else None]
        return min((wait for wait in waits if wait is not None), default=None)

    def serve(self, connection: Connection, request: Request) -> None:
        try:
            match request:
                case warden_protocol.Usage():
                    self.answers.grant(connection, self._usage(connection.peer).as_dict())
                case Lend():
                    self.delegation.lend(connection)
                case Delegate():
                    self.delegation.ask(connection)
                case Plug(what):
                    self.plugging.ask(connection, self.state, what)
                case Tell(word, cause):
                    self._hear(connection, {"word": word, "cause": cause})
                case _:
                    assert_never(request)
        except Exception as error:
            self.answers.refuse(connection, request.verb, told(error))

    def _usage(self, peer: Peer) -> Usage:
        if peer.uid != ROOT_UID:
            identify(peer, self.state.job)
        if self.state.usage:
            return self.state.usage
        if self.state.tree is None:
            raise MoorageError("nothing has been delegated in this job yet")
        return Usage.of(self.state.tree)

    def _hear(self, connection: Connection, words: Mapping[str, str]) -> None:
        """Note how far the start has come, for the journal and the job's record, and for nothing else."""
        identify(connection.peer, self.state.job)
        if step := start_log.hear(self.state.job, words):
            seconds = start_log.read(self.state.job.id).since(step)
            about = {"step": step.word, "seconds": seconds, "cause": step.cause}
            priority = journal.WARNING if step.word == phases.FAILED else journal.INFO
            journal.log(start_log.told(step), phase="start", job=self.state.job, priority=priority, **about)
        self.answers.grant(connection, {})

    def watch_rules(self) -> None:
        """Watch the rules of the job's networks: a manager of this node's packet filter may flush them."""
        if self.state.networked:
            # Imported here, because most jobs have no network of their own.
            from moorage.root.net import job_networks
            from moorage.root.net.rule_watch import Watch

            self.rules = Watch(job_networks.kept(self.state))
            self.events.register(self.rules, selectors.EVENT_READ, self._look)
            self._look()

    def _look(self) -> None:
        """Put back the rules that are gone."""
        if self.rules is None:
            return
        self.again = None
        try:
            for name in self.rules.look():
                journal.log(f"rules of {name} were gone, and are back", phase="network", job=self.state.job)
        except ExceptionGroup as errors:
            self.again = Deadline(MENDING)
            if self.answers.may_tell("rules"):
                for error in errors.exceptions:
                    journal.log(told(error), phase="network", job=self.state.job, priority=journal.ERROR)


def main(words: Sequence[str]) -> NoReturn:
    with reported("moorage-warden"), selectors.DefaultSelector() as events:
        (number,) = words
        job = int(number)
        held = _lock(job)
        systemd.keep(held.descriptor, LOCK_NAME)
        held.leave()
        state = load(job)
        if state is None or not state.this_boot:
            raise MoorageError(f"no Prolog has prepared job {job} on this node", code="M-JOB-16")
        warden = Warden(state.noted(owner=Process.current()), events)
        warden.delegation.resume()
        warden.watch_rules()
        systemd.notify("READY=1")
        warden.run()


def _lock(job: int) -> lock.Lock:
    """The lock of an earlier warden, or the one that the Prolog gives up while it waits for this warden."""
    kept = systemd.kept()
    return lock.inherited(job, kept[LOCK_NAME]) if LOCK_NAME in kept else lock.take(job, LOCK_TIMEOUT)


if __name__ == "__main__":
    main(sys.argv[1:])
