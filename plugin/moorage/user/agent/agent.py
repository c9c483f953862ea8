"""`moorage agent`: one process on every node of a job.

It carries out the commands of `moorage run`, asks the warden for what only root can do, and starts the keeper, which is
the parent of everything that the job runs on this node.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, assert_never

from moorage.common import phases, warden_protocol
from moorage.common.deadline import Deadline
from moorage.common.description import Mooring
from moorage.common.errors import MoorageError, shortened
from moorage.common.events import FROM_OUTSIDE, Signals, Watch, name
from moorage.common.warden_protocol import Delegate, Plug, Tell
from moorage.user import failure_report, messages
from moorage.user.agent import placeholder
from moorage.user.agent.keeper import keep
from moorage.user.channel import Receiver, Sender, writer
from moorage.user.messages import (
    ClusterUp,
    Delegated,
    Down,
    DownRequested,
    Event,
    Failed,
    Invited,
    Join,
    KeeperCommand,
    Log,
    Note,
    PhaseBegun,
    Plugged,
    PlugWanted,
    Ready,
    Signalled,
    Step,
    Used,
    Without,
)
from moorage.user.run import srun

USAGE_TIMEOUT: Final = 10.0
# A warden that does not answer must not delay the start: what the agent tells is only for the administrator.
TELL_TIMEOUT: Final = 1.0
DESCRIPTORS: Final = 4
# The keeper has this much longer than its own timeout; then the warden tears the cgroup down.
KEEPER_EXTRA: Final = 5.0


def main(words: Sequence[str]) -> int:
    # Slurm signals steps directly, and the first signal may be here before anything is ready to take it.
    signal.pthread_sigmask(signal.SIG_BLOCK, FROM_OUTSIDE)
    if os.environ.get("SLURM_LOCALID") == str(srun.AGENT):
        return agent(os.environ)
    return placeholder.main(os.environ)


def agent(environ: Mapping[str, str]) -> int:
    """Serve until standard input ends or says `down`; return the exit code. Signals are reported and ignored."""
    node = environ.get("SLURMD_NODENAME", "?")
    sender = Sender(writer(sys.stdout.fileno()), f"{node}.{os.getpid()}")
    try:
        mooring = Mooring.of_this_job(environ)
    except Exception as error:
        sender.send(messages.encode_event(Failed(_cause(error)), node))
        return 1
    reports = Reports(mooring, node, sender)
    try:
        keeper, connection = start_keeper(mooring)
        with Signals(FROM_OUTSIDE) as signals, Watch() as watch, placeholder.listening(mooring.places):
            return Agent(mooring, reports, keeper, connection, watch, signals).serve()
    except Exception as error:
        reports.send(Failed(_cause(error)))
        return 1


def start_keeper(mooring: Mooring) -> tuple[int, socket.socket]:
    """Return the keeper's process and a connection to it. It is a fork: starting another interpreter takes longer."""
    ours, keepers = socket.socketpair()
    keeper = os.fork()
    if keeper == 0:
        ours.close()
        try:
            os._exit(keep(mooring, keepers))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    keepers.close()
    return keeper, ours


class Reports:
    """Sends events to `moorage run`, and the progress of the start to the warden as well."""

    def __init__(self, mooring: Mooring, node: str, sender: Sender) -> None:
        self.mooring = mooring
        self.node = node
        self.sender = sender
        self.ready = False
        self.failed = False
        self._warden_listens = True
        self._last_word = ""

    def send(self, event: Event) -> None:
        if isinstance(event, Failed):
            self._send_root_log()
        self._send(event)
        match event:
            case PhaseBegun(word):
                self.tell_warden(word)
            case Ready():
                self.ready = True
                self.tell_warden(phases.READY)
            case Failed(cause):
                self.failed = True
                self.tell_warden(phases.FAILED, cause)
            case Step() | Log() | Note() | Signalled() | DownRequested() | Invited() | ClusterUp() | Used():
                pass
            case _:
                assert_never(event)

    def tell_warden(self, word: str, cause: str = "") -> None:
        """Tell each word once; tell nothing more after a call that nobody answered."""
        if word == self._last_word or not self._warden_listens:
            return
        self._last_word = word
        try:
            warden_protocol.call(self.mooring.warden, Tell(word, shortened(cause, phases.LONGEST_CAUSE)), TELL_TIMEOUT)
        except warden_protocol.Refused:
            return
        except MoorageError:
            self._warden_listens = False

    def _send_root_log(self) -> None:
        """`moorage run` may be on another node, where it cannot read this log."""
        for piece in messages.logs(failure_report.ROOT_LOG, failure_report.root_log(self.mooring.places.run)):
            self._send(piece)

    def _send(self, event: Event) -> None:
        self.sender.send(messages.encode_event(event, self.node))


class Agent:
    def __init__(
        self,
        mooring: Mooring,
        reports: Reports,
        keeper: int,
        connection: socket.socket,
        watch: Watch,
        signals: Signals,
    ) -> None:
        self.mooring = mooring
        self.reports = reports
        self.keeper = keeper
        self.connection = connection
        self.watch = watch
        self.signals = signals
        self.keeper_gone = False
        self.told_to_end = False
        self._commands = Receiver()
        self._events = Receiver()
        # Those that came with events which are not dealt with yet.
        self._descriptors: list[int] = []

    def serve(self) -> int:
        self.watch.on(self.signals.descriptor, self._report_signals)
        self.watch.on(sys.stdin.fileno(), self._receive_commands)
        self.watch.on(self.connection.fileno(), self._receive_events)
        self.reports.send(Step(os.environ.get("SLURM_STEP_ID", "")))
        self._delegate()
        while not (self.told_to_end or self.keeper_gone):
            self.watch.once()
        if self.keeper_gone and not self.reports.failed:
            how = self._end_of_keeper()
            cause = f"the keeper of the job's tree has ended ({how}), and all in there ends with it [M-JOB-8]"
            self.reports.send(Failed(cause))
        self._end()
        return 1 if self.reports.failed else 0

    def _delegate(self) -> None:
        self.reports.send(PhaseBegun(phases.CGROUP.word, phases.CGROUP.text))
        answer = warden_protocol.call(self.mooring.warden, Delegate(), self.mooring.waits.agents)
        self._command_keeper(Delegated(answer["tree"]))

    def _end(self) -> None:
        """End the keeper, then report what was used. When this process has ended, the warden removes the cgroup."""
        if self.reports.ready:
            if self.told_to_end:
                self.reports.tell_warden(phases.DOWN)
            self._command_keeper(Down())
        elif not self.keeper_gone:
            # The keeper may be waiting for Podman, and nothing runs yet that could end by itself.
            os.kill(self.keeper, signal.SIGKILL)
        self.watch.until(lambda: self.keeper_gone, Deadline(self.mooring.waits.kill + KEEPER_EXTRA))
        with suppress(MoorageError):
            used = warden_protocol.call(self.mooring.warden, warden_protocol.Usage(), USAGE_TIMEOUT)
            self.reports.send(Used(**used))

    def _receive_commands(self) -> None:
        chunk = os.read(sys.stdin.fileno(), 1 << 16)
        if not chunk:
            self.watch.off(sys.stdin.fileno())
            self.told_to_end = True
        for message in self._commands.receive(chunk):
            if isinstance(message, dict):
                self._obey(messages.decode_command(message))

    def _obey(self, command: KeeperCommand | None) -> None:
        match command:
            case Down():
                self.told_to_end = True
            case Join() | Without():
                self._command_keeper(command)
            case Delegated() | Plugged() | None:
                # Only an agent sends the first two.
                pass
            case _:
                assert_never(command)

    def _receive_events(self) -> None:
        try:
            chunk, descriptors, _, _ = socket.recv_fds(self.connection, 1 << 16, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            chunk, descriptors = b"", []
        self._descriptors += descriptors
        if not chunk:
            self.watch.off(self.connection.fileno())
            self.keeper_gone = True
        for message in self._events.receive(chunk):
            match messages.decode_event(message) if isinstance(message, dict) else None:
                case None:
                    pass
                case PlugWanted(what):
                    self._plug(what)
                case event:
                    self.reports.send(event)

    def _plug(self, what: str) -> None:
        """Pass the namespace on to the warden, which listens to this process alone and checks the namespace itself."""
        namespace = self._descriptors.pop(0)
        try:
            warden_protocol.call(self.mooring.warden, Plug(what), self.mooring.waits.agents, descriptor=namespace)
        finally:
            os.close(namespace)
        self._command_keeper(Plugged(what))

    def _command_keeper(self, command: KeeperCommand) -> None:
        with suppress(OSError):
            Sender(self.connection.sendall).send(messages.encode_command(command))

    def _report_signals(self) -> None:
        for number in self.signals.take():
            self.reports.send(Signalled(name(number)))

    def _end_of_keeper(self) -> str:
        with suppress(ChildProcessError):
            code = os.waitstatus_to_exitcode(os.waitpid(self.keeper, 0)[1])
            return f"exit code {code}" if code >= 0 else f"killed by {name(-code)}"
        return "nobody knows how"


def _cause(error: Exception) -> str:
    return error.line if isinstance(error, MoorageError) else f"{type(error).__name__}: {error}"
