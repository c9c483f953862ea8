"""The keeper: the process in the delegated cgroup that is the parent of everything else in there.

It prepares Podman, makes the job's cluster, and runs programs (`podman`) for processes outside of the cgroup.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

from moorage.common import phases
from moorage.common.deadline import Deadline
from moorage.common.description import Mooring
from moorage.common.errors import MoorageError
from moorage.common.events import FROM_OUTSIDE, Signals, Watch
from moorage.common.phases import Phase
from moorage.linux import libc
from moorage.user import failure_report, messages
from moorage.user.agent import delegated_cgroup, rootless, ulimits
from moorage.user.agent.exec_server import Execution
from moorage.user.channel import Receiver, Sender, writer
from moorage.user.cluster.invitation import Invitation, JoiningNodes
from moorage.user.messages import (
    ClusterUp,
    Delegated,
    Down,
    DownRequested,
    Failed,
    Invited,
    Join,
    KeeperCommand,
    KeeperEvent,
    Note,
    PhaseBegun,
    Plugged,
    PlugWanted,
    Ready,
    Without,
)
from moorage.user.network import bridge

if TYPE_CHECKING:
    from moorage.user.network.holder_client import HolderClient

LOG: Final = "keeper.log"
BACKLOG: Final = 64
STOPPING: Final = 3.0
# A holder that has ended is replaced at most this many times.
MORE_HOLDERS: Final = 3

_SET_CHILD_SUBREAPER: Final = 36
_PEER: Final = struct.Struct("iII")


def keep(mooring: Mooring, agent: socket.socket) -> int:
    """Serve the job until the agent, at the other end of this connection, says `down` or ends; return an exit code."""
    _detach(mooring.places.user / LOG)
    with Signals(FROM_OUTSIDE | {signal.SIGCHLD}) as signals, Watch() as watch:
        keeper = Keeper(mooring, agent, watch, signals)
        try:
            keeper.begin()
            keeper.serve()
        except Exception as error:
            keeper.fail(error)
            return 1
        finally:
            keeper.end()
    return 0


class Keeper:
    def __init__(self, mooring: Mooring, agent: socket.socket, watch: Watch, signals: Signals) -> None:
        self.mooring = mooring
        self.agent = agent
        self.watch = watch
        self.signals = signals
        self.log = mooring.places.user / LOG
        self.cgroup: Path | None = None
        self.executions: list[Execution] = []
        self.told_to_end = False
        # The job's networks that the warden has plugged.
        self.plugged: set[str] = set()
        self.invitation: Invitation | None = None
        self.joining = JoiningNodes(mooring.fabric.hosts[1:] if mooring.fabric else ())
        self.holder: HolderClient | None = None
        self.more_holders = MORE_HOLDERS
        self._commands = Receiver()
        self._events = Sender(writer(agent.fileno()))
        self._listener: socket.socket | None = None
        self._suspects: set[int] = set()
        self._noted = False

    def begin(self) -> None:
        """Prepare everything, up to the moment from which the job's script may call Podman."""
        self.watch.on(self.agent.fileno(), self._receive_commands)
        self.watch.until(lambda: self.told_to_end or self.cgroup is not None, Deadline(self.mooring.waits.agents))
        if self.told_to_end:
            return
        if self.cgroup is None:
            raise MoorageError("the agent did not say where the job's tree is")
        delegated_cgroup.enter(self.cgroup)
        delegated_cgroup.prove(self.cgroup)
        ulimits.raised()
        self._report_phase(phases.PODMAN, phases.PODMAN.text)
        rootless.prepare(self.mooring, self.log)
        if bridge.wants_holder(self.mooring):
            self._make_network()
        if self.mooring.spec.cluster == "kind":
            with self.watch.guarded(self._check_start):
                self._start_cluster(self.cgroup)
        self._await_network()
        self.watch.on(self.signals.descriptor, self._reap)
        self._listen()
        self._send(Ready())

    def _make_network(self) -> None:
        """Start the holder of the job's network, which comes up beside everything else, and make Podman's bridge."""
        from moorage.user.network.holder_client import HolderClient

        self.holder = holder = HolderClient(self.mooring, self._hand_over_namespace)
        self.watch.on(holder.fileno(), lambda: self._hear_holder(holder))
        if self.mooring.fabric:
            rootless.podman(self.mooring, self.log, bridge.creation(self.mooring.fabric, self.mooring.place))

    def _start_cluster(self, cgroup: Path) -> None:
        # Imported only here: most jobs have no cluster.
        if self.mooring.place and self.mooring.fabric and self.holder:
            from moorage.user.cluster import other_node

            network = other_node.Network(self.mooring.fabric, self.holder)
            other_node.join(self.mooring, cgroup, self._report_phase, self.watch, network, lambda: self.invitation)
            return
        from moorage.user.cluster import first_node

        up = first_node.boot(self.mooring, cgroup, self._report_phase, self.watch, self.joining, self._invite)
        self._send(ClusterUp(up.name, up.server, tuple(sorted(self.joining.given_up))))

    def _invite(self, invitation: Invitation) -> None:
        self._send(Invited(invitation))

    def _check_start(self) -> None:
        """Raise a MoorageError if the cluster's start makes no sense any more."""
        if self.told_to_end:
            raise MoorageError("the agent has ended")
        self._check_network()

    def _await_network(self) -> None:
        """Until the network is plugged, the script's containers would reach nobody."""

        def settled() -> bool:
            self._check_network()
            return self.told_to_end or not self._unplugged

        if not self.watch.until(settled, Deadline(self.mooring.waits.podman)):
            raise MoorageError(
                f"the job's network was not plugged: {', '.join(sorted(self._unplugged))}", code="M-JOB-19"
            )

    @property
    def _unplugged(self) -> set[str]:
        return set(bridge.plugs(self.mooring)) - self.plugged

    def _check_network(self) -> None:
        if self.holder and self.holder.gone and self._unplugged:
            raise MoorageError("Podman cannot hold the job's network open", code="M-JOB-20")

    def _report_phase(self, phase: Phase, text: str) -> None:
        self._send(PhaseBegun(phase.word, text))

    def _send(self, event: KeeperEvent) -> None:
        self._events.send(messages.encode_event(event))

    def serve(self) -> None:
        while not self.told_to_end:
            self.watch.once(min((one.grace.left for one in self.executions if one.grace), default=None))
            for execution in self.executions:
                if execution.grace and execution.grace.passed:
                    execution.signal_group()
            for execution in [one for one in self.executions if one.over]:
                self._drop(execution)

    def fail(self, error: Exception) -> None:
        logs = dict(getattr(error, "logs", {}))
        with suppress(OSError):
            logs["Podman"] = failure_report.end(self.log.read_text(errors="replace"), failure_report.LOG_END)
        for of, text in logs.items():
            for piece in messages.logs(of, text):
                self._send(piece)
        self._send(Failed(error.line if isinstance(error, MoorageError) else f"{type(error).__name__}: {error}"))

    def end(self) -> None:
        """Tear the cgroup down: containers are asked to stop, then whatever is left is killed."""
        deadline = Deadline(self.mooring.waits.kill)
        if self._listener:
            self.mooring.places.socket.unlink(missing_ok=True)
        if self.cgroup:
            delegated_cgroup.ask(self.cgroup, deadline.within(STOPPING))
            if not delegated_cgroup.end(self.cgroup, {os.getpid()}, deadline):
                self._send(Note(f"processes in {self.cgroup} do not end: left to its Epilog"))
            delegated_cgroup.clear(self.cgroup)
        for execution in self.executions:
            execution.close()

    def _receive_commands(self) -> None:
        chunk = self.agent.recv(1 << 16)
        if not chunk:
            self.watch.off(self.agent.fileno())
            self.told_to_end = True
        for message in self._commands.receive(chunk):
            command = messages.decode_command(message) if isinstance(message, dict) else None
            if command:
                self._obey(command)

    def _obey(self, command: KeeperCommand) -> None:
        match command:
            case Delegated(path):
                self.cgroup = Path(path)
            case Plugged(what):
                self.plugged.add(what)
            case Join(invitation):
                self.invitation = invitation
            case Without(node):
                self.joining.give_up(node)
            case Down():
                self.told_to_end = True
            case _:
                assert_never(command)

    def _hear_holder(self, holder: HolderClient) -> None:
        """Replace a holder that has ended, unless it has ended before it was of any use: the next one would, too."""
        holder.receive()
        if not holder.gone:
            return
        self.watch.off(holder.fileno())
        if self.more_holders and not self._unplugged:
            self.more_holders -= 1
            holder.start_again()
            self.watch.on(holder.fileno(), lambda: self._hear_holder(holder))
        else:
            self._send(Note(f"the job's network is not held any more: see {self.log}"))

    def _hand_over_namespace(self, namespace: int) -> None:
        """Ask the agent, because the warden plugs for the agent alone."""
        events = Sender(lambda line: socket.send_fds(self.agent, [line], [namespace]))
        for what in bridge.plugs(self.mooring):
            events.send(messages.encode_event(PlugWanted(what)))

    def _listen(self) -> None:
        place = self.mooring.places.socket
        place.unlink(missing_ok=True)
        self._listener = listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.bind(os.fspath(place))
        place.chmod(0o600)
        listener.listen(BACKLOG)
        self.watch.on(listener.fileno(), lambda: self._accept(listener))

    def _accept(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionError):
            connection, _ = listener.accept()
            execution = Execution(connection, self.mooring.places, lambda: self._send(DownRequested()))
            if _user(connection) != os.getuid():
                execution.close()
                return
            self.executions.append(execution)
            self.watch.on(connection.fileno(), lambda: self._hear_caller(execution))

    def _hear_caller(self, execution: Execution) -> None:
        execution.receive()
        if execution.caller_done:
            self.watch.off(execution.connection.fileno())

    def _drop(self, execution: Execution) -> None:
        self.watch.off(execution.connection.fileno())
        execution.close()
        self.executions.remove(execution)
        self._note_containers_astray()

    def _reap(self) -> None:
        """Reap the children that have ended: those of executions, and orphans of which we have become the parent."""
        self.signals.take()
        while ended := _ended_child():
            # Once a process is reaped, its number can belong to another one.
            matching = (one for one in self.executions if one.running and one.process and one.process.pid == ended)
            execution = next(matching, None)
            if execution and execution.grace:
                execution.signal_group()
            _, status = os.waitpid(ended, 0)
            if execution:
                execution.ended(status)

    def _note_containers_astray(self) -> None:
        """Report a container without a cgroup of its own, if it is seen twice.

        A container on its way into its cgroup, and a process that cleans up after one, are there only for a moment.
        """
        before, self._suspects = self._suspects, delegated_cgroup.astray(self.cgroup) if self.cgroup else set()
        if before & self._suspects and not self._noted:
            self._noted = True
            self._send(Note("a container has no cgroup of its own: no limit that it was given holds [M-JOB-29]"))


def _detach(log: Path) -> None:
    """Leave the agent's session, and close the streams of srun, which would stay open as long as this process lives."""
    os.setsid()
    os.umask(0o077)
    os.chdir("/")
    for path, numbers in (("/dev/null", (0,)), (log, (1, 2))):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        for number in numbers:
            os.dup2(descriptor, number)
        os.close(descriptor)
    # Orphans, such as a container's monitor and Podman's helpers, become children of this process and not of Slurm's.
    libc.prctl(_SET_CHILD_SUBREAPER, 1)


def _ended_child() -> int | None:
    """A child that has ended and is not reaped yet."""
    with suppress(ChildProcessError):
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended.si_pid if ended else None
    return None


def _user(connection: socket.socket) -> int:
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(uid)
